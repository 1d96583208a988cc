#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/buffer.h"

namespace unisono::comm {

/// What all ranks must agree on where each knows the sizes of all blocks.
struct BlockSizes {
  std::int64_t total = 0;
  /// 0 for blocks of equal size, else a hash of the sizes.
  std::uint64_t fingerprint = 0;
};

[[nodiscard]] BlockSizes sizes_of(std::span<const std::int64_t> counts);
[[nodiscard]] BlockSizes sizes_of(std::span<const Buffer> blocks);

}  // namespace unisono::comm
