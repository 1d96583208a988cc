#pragma once

#include "unisono/engine/backends.h"

namespace unisono::engine::nccl {

/// The row of the table of backends, present where the machine has a GPU and the build and the
/// machine have NCCL. A missing GPU is named before a missing NCCL.
[[nodiscard]] Backend describe_backend();

/// Makes engines on NVIDIA's libraries, which are loaded first. Throws Error with what to install
/// where NCCL is missing; always in a build without nccl.h.
[[nodiscard]] MakeEngine engine_maker();

}  // namespace unisono::engine::nccl
