#pragma once

#include <functional>
#include <memory>

#include "unisono/comm/process_group.h"

namespace unisono::testing {

/// Runs `body` on every rank of a new group, each a thread of this process with one compute thread.
/// When a body throws, its group is destroyed, which ends the others; the first exception is thrown
/// again here.
void run_ranks(int world_size, const std::function<void(std::shared_ptr<ProcessGroup>)>& body);

}  // namespace unisono::testing
