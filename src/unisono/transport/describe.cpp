#include "unisono/transport/describe.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {
namespace {

// Of a long list the first ones are shown.
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

// " in 3 blocks of 4 each", " in 3 blocks of 3, 4, 5"; as far as the descriptor knows:
// " in blocks of 3, ...", nothing for equal ones.
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

// "sum", "premul_sum 0.5", "user 1a2b3c4d"; "premul_sum 1a2b3c4d" where the detail has no room for
// the factor.
std::string describe_reduction(const Descriptor& descriptor) {
  const char* const name = unisono::to_string(descriptor.reduce);
  if (!has_parameter(descriptor.reduce)) {
    return name;
  }
  return descriptor.reduce == ReduceKind::kPremulSum && !has_blocks(descriptor.kind)
             ? fmt::format("{} {}", name, std::bit_cast<double>(descriptor.detail))
             : fmt::format("{} {:08x}", name, descriptor.detail >> 32);
}

}  // namespace

const char* to_string(OperationKind kind) noexcept {
  switch (kind) {
    case OperationKind::kNone:
      return "no operation";
    case OperationKind::kBarrier:
      return "barrier";
    case OperationKind::kBroadcast:
      return "broadcast";
    case OperationKind::kAllReduce:
      return "all_reduce";
    case OperationKind::kReduce:
      return "reduce";
    case OperationKind::kReduceScatter:
      return "reduce_scatter";
    case OperationKind::kAllGather:
      return "all_gather";
    case OperationKind::kGather:
      return "gather";
    case OperationKind::kScatter:
      return "scatter";
    case OperationKind::kAllToAll:
      return "all_to_all";
    case OperationKind::kMonitoredBarrier:
      return "monitored_barrier";
    case OperationKind::kAllReduceCoalesced:
      return "all_reduce_coalesced";
    case OperationKind::kAllGatherCoalesced:
      return "all_gather_coalesced";
    case OperationKind::kReduceScatterCoalesced:
      return "reduce_scatter_coalesced";
  }
  return "unknown operation";
}

std::string describe_rank(int rank, JobRanks job_ranks) {
  const auto index = static_cast<std::size_t>(rank);
  // What a peer says may be no rank at all.
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

}  // namespace unisono::transport
