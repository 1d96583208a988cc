#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bench {

/// Largest message that is passed in a slot: what fits into a cache line beside its number.
inline constexpr std::size_t kSlotBytes = 64 - sizeof(std::uint64_t);

/// What two processes share besides their buffers. All zero at first.
struct LimitMemory {
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> sequence;
    std::array<std::byte, kSlotBytes> payload;
  };

  struct alignas(64) Stage {
    std::atomic<std::uint64_t> number;
  };

  // By rank, and by turns: a rank is at most one message ahead of the other.
  std::array<std::array<Slot, 2>, 2> slots;
  std::array<Stage, 2> stages;
  std::array<std::array<double, 1024>, 2> values;
};

/// One of two processes that add up arrays in memory which both see, with nothing but the loads,
/// stores and waits that this takes: no checks, no errors, no deadlines.
class LimitRank {
 public:
  LimitRank(LimitMemory& memory, int rank) : memory_(memory), rank_(rank) {}

  /// Waits until the other has called it as often.
  void meet();

  /// Adds the ranks' `count` elements up into both. `data` are this rank's and the other's.
  void all_reduce(float* mine, float* theirs, std::int64_t count);

  void max_of_ranks(std::span<double> values);

 private:
  void all_reduce_through_slots(float* mine, std::int64_t count);
  void all_reduce_in_halves(float* mine, float* theirs, std::int64_t count);

  [[nodiscard]] std::size_t self() const { return static_cast<std::size_t>(rank_); }

  [[nodiscard]] std::size_t other() const { return static_cast<std::size_t>(1 - rank_); }

  LimitMemory& memory_;
  int rank_;
  std::uint64_t stage_ = 0;
  std::uint64_t message_ = 0;
};

}  // namespace bench
