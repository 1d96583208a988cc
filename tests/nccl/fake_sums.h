// The fake libnccl.so.2's arithmetic: that of our own kernels, in the order of the canonical tree,
// so that tests compare bits. NVIDIA's adds in another order.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <vector>

namespace fake_nccl {

[[nodiscard]] std::size_t size_of(ncclDataType_t type);

/// The ranks' elements, combined. Nothing for what NCCL does not have.
[[nodiscard]] std::optional<std::vector<std::byte>> combine(
    const std::vector<const std::byte*>& ranks,
    std::size_t count,
    ncclDataType_t type,
    ncclRedOp_t op);

}  // namespace fake_nccl
