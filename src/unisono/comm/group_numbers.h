#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

namespace unisono::comm {

/// Numbers for the groups of which this rank is the first: a group of a job has the number 0 if it
/// has all ranks from the start, else its first rank and a serial number of that one. So no two
/// groups of a job have the same, and no rank asks another for one. Thread-safe.
class GroupNumbers {
 public:
  /// Of a rank of the job.
  GroupNumbers(int rank, int world_size);

  /// The first of `n` numbers that nobody has had, and nobody else gets; the others follow it.
  /// Throws Error(kInternal) when there are not so many left.
  [[nodiscard]] std::uint32_t take(std::size_t n);

  /// Which of one rank's numbers follows.
  [[nodiscard]] std::uint32_t next(std::uint32_t number) const { return number + world_size_; }

  /// What messages call it: "2.1" is the first of which rank 2 is the first rank.
  [[nodiscard]] std::string name(std::uint32_t number) const;

 private:
  std::uint32_t rank_;
  std::uint32_t world_size_;
  std::atomic<std::uint64_t> n_taken_ = 0;  // Relaxed: it orders nothing else.
};

}  // namespace unisono::comm
