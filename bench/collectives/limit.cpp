#include "limit.h"

#include <hwy/cache_control.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

#include "add_into_both.h"

namespace bench {
namespace {

void wait_until(const std::atomic<std::uint64_t>& number, std::uint64_t at_least) {
  while (number.load(std::memory_order_acquire) < at_least) {
    hwy::Pause();
  }
}

}  // namespace

void LimitRank::meet() {
  ++stage_;
  memory_.stages[self()].number.store(stage_, std::memory_order_release);
  wait_until(memory_.stages[other()].number, stage_);
}

void LimitRank::all_reduce(float* mine, float* theirs, std::int64_t count) {
  if (static_cast<std::size_t>(count) * sizeof(float) <= kSlotBytes) {
    all_reduce_through_slots(mine, count);
  } else {
    all_reduce_in_halves(mine, theirs, count);
  }
}

void LimitRank::all_reduce_through_slots(float* mine, std::int64_t count) {
  const std::size_t turn = ++message_ % 2;
  LimitMemory::Slot& to = memory_.slots[self()][turn];
  const LimitMemory::Slot& from = memory_.slots[other()][turn];
  std::memcpy(to.payload.data(), mine, static_cast<std::size_t>(count) * sizeof(float));
  to.sequence.store(message_, std::memory_order_release);
  wait_until(from.sequence, message_);
  std::array<float, kSlotBytes / sizeof(float)> theirs;
  std::memcpy(theirs.data(), from.payload.data(), static_cast<std::size_t>(count) * sizeof(float));
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    mine[i] += theirs[i];
  }
}

void LimitRank::all_reduce_in_halves(float* mine, float* theirs, std::int64_t count) {
  constexpr std::int64_t kFloatsInCacheLine = 16;
  const std::int64_t middle = count / 2 / kFloatsInCacheLine * kFloatsInCacheLine;
  const std::int64_t begin = rank_ == 0 ? 0 : middle;
  const std::int64_t n_mine = rank_ == 0 ? middle : count - middle;
  meet();
  add_into_both(mine + begin, theirs + begin, n_mine);
  meet();
}

void LimitRank::max_of_ranks(std::span<double> values) {
  while (!values.empty()) {
    const std::size_t n_values = std::min(values.size(), memory_.values[0].size());
    const std::span<double> block = values.first(n_values);
    std::ranges::copy(block, memory_.values[self()].begin());
    meet();
    for (std::size_t i = 0; i < n_values; ++i) {
      block[i] = std::max(block[i], memory_.values[other()][i]);
    }
    meet();
    values = values.subspan(n_values);
  }
}

}  // namespace bench
