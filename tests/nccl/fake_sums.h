// Arithmetic of the fake libnccl.so.2: our own kernels in the order of the canonical tree, so that
// tests can compare bits. NVIDIA's library adds in another order.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/engine/nccl/nccl_api.h"

namespace fake_nccl {

[[nodiscard]] std::size_t size_of(ncclDataType_t type);

/// Returns the reduction of the ranks' elements. Returns std::nullopt for reductions that NCCL does
/// not support.
[[nodiscard]] std::optional<std::vector<std::byte>> combine(
    const std::vector<const std::byte*>& ranks,
    std::size_t count,
    ncclDataType_t type,
    ncclRedOp_t op);

}  // namespace fake_nccl
