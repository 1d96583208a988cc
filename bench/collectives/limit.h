#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

namespace bench {

/// Largest message for a slot: the part of a cache line that remains beside the sequence number.
inline constexpr std::size_t kSlotBytes = 64 - sizeof(std::uint64_t);

/// Memory that two processes share in addition to their buffers. Initially all zero.
struct LimitMemory {
  struct alignas(64) Slot {
    std::atomic<std::uint64_t> sequence;
    std::array<std::byte, kSlotBytes> payload;
  };

  struct alignas(64) Stage {
    std::atomic<std::uint64_t> number;
  };

  // Indexed by rank and by turn: a rank is at most one message ahead of the other.
  std::array<std::array<Slot, 2>, 2> slots;
  std::array<Stage, 2> stages;
  std::array<std::array<double, 1024>, 2> values;
};

/// One of two processes that add arrays in shared memory, with only the necessary loads, stores and
/// waits: no checks, no errors, no deadlines.
class LimitRank {
 public:
  LimitRank(LimitMemory& memory, int rank) : memory_(memory), rank_(rank) {}

  /// Waits until the other rank has made the same number of calls.
  void meet();

  /// Adds the ranks' `count` elements and stores the sums in both buffers: this rank's buffer and
  /// the other rank's buffer.
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
