#include "unisono/comm/group_numbers.h"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

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

}  // namespace unisono::comm
