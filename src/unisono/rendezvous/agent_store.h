#pragma once

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// Whether the launcher serves the store at MASTER_PORT: TORCHELASTIC_USE_AGENT_STORE says so, and
/// the program has not set MASTER_PORT to another, as programs do that start ranks themselves.
/// Reads /proc, where TORCHELASTIC_RUN_ID and TORCHELASTIC_ERROR_FILE tell the launcher's process
/// of this rank from others.
[[nodiscard]] bool has_agent_store(const Environment& environment);

}  // namespace unisono::rendezvous
