#pragma once

#include "unisono/engine/backends.h"

namespace unisono::engine::nccl {

/// Returns the backend `nccl`. It is available if the machine has a GPU, and both the build and the
/// machine have NCCL. A missing GPU is reported before a missing NCCL.
[[nodiscard]] Backend describe_backend();

/// Loads NVIDIA's libraries, and returns the maker of engines that use them. Throws Error with the
/// packages to install if NCCL is missing; always throws in a build without nccl.h.
[[nodiscard]] MakeEngine engine_maker();

}  // namespace unisono::engine::nccl
