#pragma once

#include <sys/types.h>

#include <optional>

namespace unisono::rendezvous {

/// The process that set an environment variable for this one: its nearest ancestor that was started
/// without it. So for all ranks of a node that one process started, whatever shells or scripts
/// stand between. Reads /proc; nothing where that ends first, as in a container of its own.
[[nodiscard]] std::optional<pid_t> process_that_set(const char* variable);

}  // namespace unisono::rendezvous
