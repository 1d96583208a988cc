#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"

namespace unisono::comm {

/// What all ranks must agree on where each knows the sizes of all blocks.
struct BlockSizes {
  std::int64_t total = 0;
  /// 0 for blocks of equal size, else a hash of the sizes.
  std::uint64_t fingerprint = 0;
};

[[nodiscard]] BlockSizes sizes_of(std::span<const std::int64_t> counts);
[[nodiscard]] BlockSizes sizes_of(std::span<const Buffer> blocks);

/// Differs where the sizes of `buffers` do, or their number.
[[nodiscard]] std::uint64_t fingerprint_of(std::span<const Buffer> buffers);

/// What ranks must agree on of a reduction beyond its kind: the factor's bits, a hash of the name
/// of a user's function; else 0.
[[nodiscard]] std::uint64_t fingerprint_of(const ReduceOp& op);

}  // namespace unisono::comm
