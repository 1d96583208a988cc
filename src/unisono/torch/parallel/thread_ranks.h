#pragma once

#include <functional>
#include <memory>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

/// Runs `body` as each of `n_ranks` ranks of a new group, with the ranks as threads of this
/// process, and waits for all. A pipeline's program can thus run in one process. The compute
/// threads are divided among the ranks.
///
/// If a rank throws, the rank's group is aborted, and the function throws the first exception.
void run_in_threads(int n_ranks,
                    const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& body);

}  // namespace unisono::parallel
