#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

namespace unisono::rendezvous {

/// The process that set an environment variable for this one: its nearest ancestor that was started
/// without it. So for all ranks of a node that one process started, whatever shells or scripts
/// stand between. Reads /proc; nothing where that ends first, as in a container of its own.
[[nodiscard]] std::optional<pid_t> process_that_set(const char* variable);

/// What `variable` was for the first process that was started with `entries`, as "NAME=value", in
/// its environment: for this one or an ancestor, which they may all have changed since. Reads
/// /proc; nothing where this process was not started with them.
[[nodiscard]] std::optional<std::string> value_at_start(const char* variable,
                                                        const std::vector<std::string>& entries);

}  // namespace unisono::rendezvous
