#pragma once

#include <cstdint>
#include <string>

namespace unisono {

/// How many samples a step takes: on each rank, and on all together.
struct GlobalBatch {
  std::int64_t per_rank = 1;
  int world_size = 1;
  std::int64_t wanted = 0;  ///< The global batch that was asked for; 0: none, but one per rank.

  [[nodiscard]] std::int64_t size() const { return per_rank * world_size; }
};

/// A global batch of `wanted` samples over the ranks, rounded down to equally many on each.
///
/// Throws Error(kInvalidArgument) unless there is at least one sample for each rank.
[[nodiscard]] GlobalBatch divide_batch(std::int64_t wanted, int world_size);

/// A line for the user: "global batch 126: 42 on each of 3 ranks (128 is no multiple of 3; 126 and
/// 129 are)".
[[nodiscard]] std::string to_string(const GlobalBatch& batch);

}  // namespace unisono
