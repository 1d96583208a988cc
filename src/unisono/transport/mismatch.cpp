#include "unisono/transport/mismatch.h"

#include <fmt/format.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

Error mismatch(const KnownCall& one, const KnownCall& other) {
  const bool shows_blocks = differ_in_blocks(one.descriptor, other.descriptor);
  const auto say = [shows_blocks](const KnownCall& call) {
    const auto counts = shows_blocks ? std::span(call.counts) : std::span<const std::int64_t>();
    return fmt::format("{} called {}", call.who, describe(call.descriptor, call.sequence, counts));
  };
  return {ErrorCode::kMismatch,
          fmt::format("ranks called different operations: {}, {}", say(one), say(other))};
}

bool differ_in_blocks(const Descriptor& one, const Descriptor& other) {
  return has_blocks(one.kind) && one.kind == other.kind && one.detail != other.detail;
}

std::vector<std::int64_t> counts_of(std::span<const Buffer> blocks) {
  std::vector<std::int64_t> counts;
  counts.reserve(blocks.size());
  for (const Buffer& block : blocks) {
    counts.push_back(block.count);
  }
  return counts;
}

}  // namespace unisono::transport
