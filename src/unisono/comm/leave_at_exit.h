#pragma once

#include <memory>

#include "unisono/comm/process_group.h"

namespace unisono::comm {

/// Destroys the group of a process that ends. What is under way has 5 s to end, else the group is
/// aborted; the process is not held up for longer than another second, whatever its threads do.
void leave_at_exit(const std::shared_ptr<ProcessGroup>& group) noexcept;

}  // namespace unisono::comm
