#include "unisono/transport/describe.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <limits>

#include "unisono/base/reduction.h"
#include "unisono/transport/rank_table.h"

namespace unisono::transport {

std::string describe(const Member& member) {
  return fmt::format("rank {} (pid {} on {})", member.job_rank, member.pid, member.host);
}

std::vector<std::string> RankTable::nodes() const {
  std::vector<std::string> names;
  for (const Member& each : members) {
    names.push_back(each.node);
  }
  return names;
}

namespace {

// Number of entries of a long list that a text includes.
constexpr std::size_t kMostCounts = 16;

std::string describe_counts(std::span<const std::int64_t> counts) {
  const auto differs = [&](std::int64_t count) { return count != counts.front(); };
  if (counts.size() > 1 && std::none_of(counts.begin(), counts.end(), differs)) {
    return fmt::format("{} each", counts.front());
  }
  const auto shown = counts.first(std::min(counts.size(), kMostCounts));
  const char* const more = shown.size() < counts.size() ? ", ..." : "";
  return fmt::format("{}{}", fmt::join(shown, ", "), more);
}

// Returns " in 3 blocks of 4 each" or " in 3 blocks of 3, 4, 5" if the counts are given. Otherwise
// only the descriptor's hint is available: returns " in blocks of 3, ..." or " in blocks of
// different sizes", and "" for equal blocks.
std::string describe_blocks(const Descriptor& descriptor, std::span<const std::int64_t> counts) {
  if (!has_blocks(descriptor.kind)) {
    return "";
  }
  const char* const name = is_coalesced(descriptor.kind) ? "buffer" : "block";
  const auto in_parts = [name](std::size_t n) {
    return fmt::format(" in {} {}{}", n, name, n == 1 ? "" : "s");
  };
  if (!counts.empty()) {
    return fmt::format("{} of {}", in_parts(counts.size()), describe_counts(counts));
  }
  const std::uint32_t hint = BlockDetail::unpack(descriptor.detail).hint;
  if (is_coalesced(descriptor.kind)) {
    return in_parts(hint);
  }
  if (hint == 0) {
    return "";
  }
  return hint == std::numeric_limits<std::uint32_t>::max()
             ? " in blocks of different sizes"
             : fmt::format(" in blocks of {}, ...", hint - 1);
}

std::string describe_shape(const Descriptor& descriptor, std::span<const std::int64_t> counts) {
  const char* const dtype = unisono::to_string(descriptor.dtype);
  if (descriptor.count == kUneven) {
    return fmt::format("{}[blocks of any size]", dtype);
  }
  return fmt::format("{}[{}]{}", dtype, descriptor.count, describe_blocks(descriptor, counts));
}

// Returns "sum", "premul_sum 0.5" or "user 1a2b3c4d". Where the detail has no room for the factor,
// the result holds a fingerprint instead: "premul_sum 1a2b3c4d".
std::string describe_reduction(const Descriptor& descriptor) {
  const char* const name = unisono::to_string(descriptor.reduce);
  if (!has_parameter(descriptor.reduce)) {
    return name;
  }
  return descriptor.reduce == ReduceKind::kPremulSum && !has_blocks(descriptor.kind)
             ? fmt::format("{} {}", name, std::bit_cast<double>(descriptor.detail))
             : fmt::format("{} {:08x}", name, descriptor.detail >> 32);
}

bool differ_in_blocks(const KnownCall& one, const KnownCall& other) {
  if (!may_differ_in_blocks(one.descriptor, other.descriptor)) {
    return false;
  }
  if (BlockDetail::unpack(one.descriptor.detail).hint !=
      BlockDetail::unpack(other.descriptor.detail).hint) {
    return true;
  }
  const bool are_known = !one.counts.empty() && !other.counts.empty();
  // Without the counts, the sizes are the cause only if the reduction has no parameter that the
  // fingerprint covers.
  const bool has_other_cause =
      has_parameter(one.descriptor.reduce) || has_parameter(other.descriptor.reduce);
  return are_known ? one.counts != other.counts : !has_other_cause;
}

// Returns a phrase that names the fields in which two calls differ, e.g. "all_reduce with different
// types and sizes".
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

const char* to_string(OperationKind kind) noexcept {
  return kind <= kLastOperationKind ? traits_of(kind).name : "unknown operation";
}

std::string describe_rank(int rank, JobRanks job_ranks) {
  const auto index = static_cast<std::size_t>(rank);
  // A rank number from a peer may be out of range.
  return rank < 0 || index >= job_ranks.size()
             ? fmt::format("{}", rank)
             : fmt::format("{} (rank {} of the job)", rank, job_ranks[index]);
}

std::string describe(const Descriptor& descriptor,
                     std::uint64_t sequence,
                     std::span<const std::int64_t> counts,
                     JobRanks job_ranks) {
  std::string text = fmt::format("{} #{}", to_string(descriptor.kind), sequence);
  if (!has_elements(descriptor.kind)) {
    return text;
  }
  text += fmt::format(" ({}", describe_shape(descriptor, counts));
  if (reduces(descriptor.kind)) {
    text += fmt::format(", {}", describe_reduction(descriptor));
  }
  if (has_root(descriptor.kind)) {
    text += fmt::format(", root {}", describe_rank(descriptor.root, job_ranks));
  }
  if (descriptor.algorithm != Algorithm::kAuto) {
    text += fmt::format(", {}", unisono::to_string(descriptor.algorithm));
  }
  return text + ")";
}

std::string describe(const RankProgress& rank_progress, JobRanks job_ranks) {
  std::string before;
  for (const std::string* const text : {&rank_progress.waits, &rank_progress.elsewhere}) {
    before += text->empty() ? "" : *text + ", and ";
  }
  const auto describe_last = [&] {
    return describe(rank_progress.descriptor, rank_progress.sequence, {}, job_ranks);
  };
  if (rank_progress.sequence > 0 && !rank_progress.has_finished) {
    return fmt::format("{}is in {}", before, describe_last());
  }
  const std::string refused =
      rank_progress.refused.empty()
          ? ""
          : fmt::format(", and refused a call for wrong arguments: \"{}\"", rank_progress.refused);
  if (rank_progress.sequence == 0) {
    return fmt::format("{}has called no collective operation of this group yet{}", before, refused);
  }
  return fmt::format("{}has finished {} and called no collective operation of this group since{}",
                     before,
                     describe_last(),
                     refused);
}

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
