#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"
#include "unisono/comm/options.h"

#include "support/ranks.h"

namespace unisono::test {

/// Returns the elements that a rank contributes: pseudo-random bytes that are finite numbers of the
/// dtype. Reductions of these numbers by the tested backend have the bits of the reference.
[[nodiscard]] std::vector<std::byte> contribution(DType dtype,
                                                  std::int64_t count,
                                                  int rank,
                                                  unsigned seed);

/// Returns the bit-exact expected result of all_reduce: the canonical tree over single ranks,
/// computed by the kernels' plain reference.
[[nodiscard]] std::vector<std::byte> expected_all_reduce(
    DType dtype, const ReduceOp& op, std::int64_t count, int world_size, unsigned seed);

/// Returns the expected result for these contributions, which are indexed by rank.
[[nodiscard]] std::vector<std::byte> expected_reduction(
    DType dtype, const ReduceOp& op, const std::vector<std::vector<std::byte>>& contributions);

/// Caches expected results by kind of reduction, because all ranks of a test request the same
/// results. Thread-safe.
class Expected {
 public:
  explicit Expected(int world_size) : world_size_(world_size) {}

  /// Returns expected_all_reduce() for the world.
  [[nodiscard]] const std::vector<std::byte>& all_reduce(DType dtype,
                                                         const ReduceOp& op,
                                                         std::int64_t count,
                                                         unsigned seed);

 private:
  int world_size_;
  std::mutex mutex_;
  std::map<std::tuple<DType, ReduceKind, std::int64_t, unsigned>, std::vector<std::byte>> results_;
};

/// Returns true if the reduction exists for the dtype and the tested backend supports the
/// reduction.
[[nodiscard]] bool is_allowed(DType dtype, ReduceKind kind);

/// Returns a world for each layout and two more worlds on one node: in one, ranks never read each
/// other's private memory; in the other, ranks always do.
[[nodiscard]] std::vector<World> worlds_of(int world_size);

/// Returns layouts of a world over nodes: one node, a node for each rank, two halves, round robin,
/// random.
[[nodiscard]] std::vector<std::vector<std::string>> layouts_of(int world_size);

}  // namespace unisono::test
