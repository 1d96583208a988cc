#pragma once

#include "unisono/engine/backends.h"

namespace unisono::engine::nccl {

/// Returns the backend `nccl`. It is available if the machine has a GPU, a driver and a release of
/// NCCL that are new enough, which are checked in this order.
[[nodiscard]] Backend describe_backend();

/// Returns the maker of the engines of this process. Throws like cuda_driver() and nccl_library(),
/// which it loads.
[[nodiscard]] MakeEngine engine_maker(const ProcessFacts& process);

}  // namespace unisono::engine::nccl
