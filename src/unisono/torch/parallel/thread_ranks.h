#pragma once

#include <functional>
#include <memory>

#include "unisono/comm/process_group.h"

namespace unisono::parallel {

/// Runs `body` as each of `n_ranks` ranks of a new group that are threads of this process, and
/// waits for all: so a pipeline's program runs in one process. The compute threads are dealt out.
///
/// Throws what the first rank threw that did; the others' group is closed then.
void run_in_threads(int n_ranks,
                    const std::function<void(const std::shared_ptr<ProcessGroup>& group)>& body);

}  // namespace unisono::parallel
