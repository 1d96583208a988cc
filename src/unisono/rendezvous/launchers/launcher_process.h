#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"

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

/// Whether the launcher serves the store at MASTER_PORT: TORCHELASTIC_USE_AGENT_STORE says so, and
/// the program has not set MASTER_PORT to another, as programs do that start ranks themselves.
/// Reads /proc, where TORCHELASTIC_RUN_ID and TORCHELASTIC_ERROR_FILE tell the launcher's process
/// of this rank from others.
[[nodiscard]] bool has_agent_store(const Environment& environment);

}  // namespace unisono::rendezvous
