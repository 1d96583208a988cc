#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/comm/options.h"

#include "support/ranks.h"

namespace unisono::test {

/// The elements that a rank contributes: pseudo-random bytes that are finite numbers of the dtype,
/// such that the tested backend's reductions of them have the bits of the reference.
[[nodiscard]] std::vector<std::byte> contribution(DType dtype,
                                                  std::int64_t count,
                                                  int rank,
                                                  unsigned seed);

/// What all_reduce must give, bit for bit: the canonical tree over single ranks, from the kernels'
/// plain reference.
[[nodiscard]] std::vector<std::byte> expected_all_reduce(
    DType dtype, const ReduceOp& op, std::int64_t count, int world_size, unsigned seed);

/// The same of such contributions, by rank.
[[nodiscard]] std::vector<std::byte> expected_reduction(
    DType dtype, const ReduceOp& op, const std::vector<std::vector<std::byte>>& contributions);

/// Remembers expected results by kind of reduction, as the ranks of a test all ask for the same
/// ones. Thread-safe.
class Expected {
 public:
  explicit Expected(int world_size) : world_size_(world_size) {}

  /// expected_all_reduce() for the world.
  [[nodiscard]] const std::vector<std::byte>& all_reduce(DType dtype,
                                                         const ReduceOp& op,
                                                         std::int64_t count,
                                                         unsigned seed);

 private:
  int world_size_;
  std::mutex mutex_;
  std::map<std::tuple<DType, ReduceKind, std::int64_t, unsigned>, std::vector<std::byte>> results_;
};

/// Whether the reduction exists for the dtype, and the tested backend has it.
[[nodiscard]] bool is_allowed(DType dtype, ReduceKind kind);

/// A world for each layout, and two more on one node: where ranks never read each other's private
/// memory, and where they always do.
[[nodiscard]] std::vector<World> worlds_of(int world_size);

/// Layouts of a world over nodes: all in one, each on its own, two halves, round robin, random.
[[nodiscard]] std::vector<std::vector<std::string>> layouts_of(int world_size);

}  // namespace unisono::test
