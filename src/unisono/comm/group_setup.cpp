#include "unisono/comm/group_setup.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <span>

#include "unisono/base/error.h"

namespace unisono::comm {

GroupNumbers::GroupNumbers(int rank, int world_size)
    : rank_(static_cast<std::uint32_t>(rank)),
      world_size_(static_cast<std::uint32_t>(world_size)) {}

std::uint32_t GroupNumbers::take(std::size_t n) {
  const std::uint64_t n_before = n_taken_.fetch_add(n, std::memory_order_relaxed);
  const std::uint64_t last = (n_before + n) * world_size_ + rank_;
  if (last > std::numeric_limits<std::uint32_t>::max()) {
    throw Error(ErrorCode::kInternal,
                fmt::format("rank {} was the first of {} new groups, and there are no numbers for "
                            "{} more",
                            rank_,
                            n_before,
                            n));
  }
  return static_cast<std::uint32_t>((n_before + 1) * world_size_ + rank_);
}

std::string GroupNumbers::name(std::uint32_t number) const {
  return fmt::format("{}.{}", number % world_size_, number / world_size_);
}

namespace {

// A large group is described by its first ranks.
constexpr std::size_t kMostNamedRanks = 16;

}  // namespace

int GroupSetup::rank_of(int job_rank) const {
  const auto found = std::ranges::find(roster.members, job_rank, &transport::Member::job_rank);
  return found == roster.members.end() ? -1 : static_cast<int>(found - roster.members.begin());
}

std::string describe_group(const GroupSetup& setup, const GroupNumbers& numbers) {
  if (setup.number == 0) {
    return "the group of all ranks";
  }
  std::vector<int> ranks;
  for (const transport::Member& member : setup.roster.members) {
    ranks.push_back(member.job_rank);
  }
  const auto shown = std::span(ranks).first(std::min(ranks.size(), kMostNamedRanks));
  return fmt::format("group {} (ranks {}{})",
                     numbers.name(setup.number),
                     fmt::join(shown, ", "),
                     shown.size() < ranks.size() ? ", ..." : "");
}

}  // namespace unisono::comm
