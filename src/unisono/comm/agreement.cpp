#include "unisono/comm/agreement.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <span>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/fnv.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"
#include "unisono/engine/operation.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {
namespace {

// With the low bit set: never 0.
template <class Values>
std::uint64_t hash_of(const Values& values) {
  std::uint64_t hash = kFnvStart;
  for (const auto value : values) {
    hash = fnv_step(hash, static_cast<std::uint64_t>(value));
  }
  return hash | 1U;
}

std::uint32_t upper_half(std::uint64_t hash) {
  return static_cast<std::uint32_t>(hash >> 32U);
}

std::int64_t total_of(std::span<const std::int64_t> counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

// What describe() makes of it: the first size of several, as far as it fits.
std::uint32_t hint_of(std::span<const std::int64_t> counts) {
  constexpr std::int64_t kMost = std::numeric_limits<std::uint32_t>::max();
  return static_cast<std::uint32_t>(std::min(counts.front(), kMost - 1) + 1);
}

}  // namespace

BlockSizes sizes_of(std::span<const std::int64_t> counts) {
  const bool is_even = std::all_of(
      counts.begin(), counts.end(), [&](std::int64_t count) { return count == counts.front(); });
  BlockSizes sizes{.total = total_of(counts)};
  if (!is_even) {
    sizes.detail = {.fingerprint = upper_half(hash_of(counts)), .hint = hint_of(counts)};
  }
  return sizes;
}

BlockSizes sizes_of(std::span<const Buffer> blocks) {
  const std::int64_t count = blocks.front().count;
  const bool is_even = std::all_of(
      blocks.begin(), blocks.end(), [&](const Buffer& block) { return block.count == count; });
  if (is_even) {
    return {.total = count * static_cast<std::int64_t>(blocks.size())};
  }
  return sizes_of(transport::counts_of(blocks));
}

BlockSizes sizes_of_coalesced(std::span<const Buffer> buffers) {
  const std::vector<std::int64_t> counts = transport::counts_of(buffers);
  return {.total = total_of(counts),
          .detail = {.fingerprint = upper_half(hash_of(counts)),
                     .hint = static_cast<std::uint32_t>(counts.size())}};
}

std::uint64_t fingerprint_of(const ReduceOp& op) {
  switch (op.kind) {
    case ReduceKind::kPremulSum:
      return std::bit_cast<std::uint64_t>(op.factor);
    case ReduceKind::kUser:
      return op.user == nullptr ? 0 : hash_of(op.user->name);
    default:
      return 0;
  }
}

void set_reduction(engine::Operation& operation, const ReduceOp& op, Algorithm algorithm) {
  transport::Descriptor& descriptor = operation.descriptor;
  descriptor.reduce = op.kind;
  descriptor.algorithm = algorithm;
  operation.factor = op.factor;
  operation.user = op.user;
  const std::uint64_t fingerprint = fingerprint_of(op);
  if (!transport::has_blocks(descriptor.kind)) {
    descriptor.detail = fingerprint;
  } else if (fingerprint != 0) {
    auto detail = transport::BlockDetail::unpack(descriptor.detail);
    detail.fingerprint ^=
        upper_half(hash_of(std::array{fingerprint & 0xFFFFFFFF, fingerprint >> 32U}));
    descriptor.detail = detail.pack();
  }
}

}  // namespace unisono::comm
