#pragma once

#include <cstdint>
#include <span>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

/// What all ranks must agree on where each knows the sizes of all blocks.
struct BlockSizes {
  std::int64_t total = 0;
  /// Of blocks of equal size that of no block.
  transport::BlockDetail detail = {};
};

[[nodiscard]] BlockSizes sizes_of(std::span<const std::int64_t> counts);
[[nodiscard]] BlockSizes sizes_of(std::span<const Buffer> blocks);

/// Of a coalesced operation: the detail differs where the sizes of `buffers` do, or their number.
[[nodiscard]] BlockSizes sizes_of_coalesced(std::span<const Buffer> buffers);

/// What ranks must agree on of a reduction beyond its kind: the factor's bits, a hash of the name
/// of a user's function; else 0.
[[nodiscard]] std::uint64_t fingerprint_of(const ReduceOp& op);

/// Makes it a reduction of that kind, its blocks' sizes being in the descriptor already.
void set_reduction(engine::Operation& operation, const ReduceOp& op, Algorithm algorithm);

}  // namespace unisono::comm
