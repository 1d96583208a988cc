#include "unisono/transport/mismatch.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/describe.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {
namespace {

bool differ_in_blocks(const KnownCall& one, const KnownCall& other) {
  if (!may_differ_in_blocks(one.descriptor, other.descriptor)) {
    return false;
  }
  if (BlockDetail::unpack(one.descriptor.detail).hint !=
      BlockDetail::unpack(other.descriptor.detail).hint) {
    return true;
  }
  const bool are_known = !one.counts.empty() && !other.counts.empty();
  // Else only sizes can have made the fingerprints differ.
  const bool has_other_cause =
      has_parameter(one.descriptor.reduce) || has_parameter(other.descriptor.reduce);
  return are_known ? one.counts != other.counts : !has_other_cause;
}

// What of two calls is not the same.
std::string describe_difference(const Descriptor& one, const Descriptor& other, bool in_blocks) {
  std::vector<const char*> parts;
  const auto add = [&](bool differs, const char* part) {
    if (differs) {
      parts.push_back(part);
    }
  };
  add(one.dtype != other.dtype, "types");
  add(one.root != other.root, "roots");
  add(one.count != other.count || in_blocks, "sizes");
  add(one.reduce != other.reduce, "reductions");
  add(one.algorithm != other.algorithm, "algorithms");
  add(parts.empty() && one.detail != other.detail, "parameters");
  if (one.kind != other.kind || parts.empty()) {
    return "different operations";
  }
  const auto but_the_last = std::span(parts).first(parts.size() - 1);
  return fmt::format("{} with different {}{}{}",
                     to_string(one.kind),
                     fmt::join(but_the_last, ", "),
                     but_the_last.empty() ? "" : " and ",
                     parts.back());
}

}  // namespace

Error mismatch(const KnownCall& one, const KnownCall& other, JobRanks job_ranks) {
  const bool shows_blocks = differ_in_blocks(one, other);
  const auto say = [&](const KnownCall& call) {
    const auto counts = shows_blocks ? std::span(call.counts) : std::span<const std::int64_t>();
    return fmt::format(
        "{} called {}", call.who, describe(call.descriptor, call.sequence, counts, job_ranks));
  };
  return {ErrorCode::kMismatch,
          fmt::format("ranks called {}: {}, {}",
                      describe_difference(one.descriptor, other.descriptor, shows_blocks),
                      say(one),
                      say(other))};
}

bool may_differ_in_blocks(const Descriptor& one, const Descriptor& other) {
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
