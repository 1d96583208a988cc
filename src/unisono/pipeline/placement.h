#pragma once

#include <vector>

namespace unisono::pipeline {

/// Stage s on rank s mod `n_ranks`. Throws Error(kInvalidArgument) for numbers below 1.
[[nodiscard]] std::vector<int> loop_placement(int n_ranks, int stages_per_rank);

/// Two stages per rank, to the last rank and back. Throws Error(kInvalidArgument) for numbers below
/// 1.
[[nodiscard]] std::vector<int> v_placement(int n_ranks);

/// Throws Error(kInvalidArgument) for a number below 1.
void check_n_chunks(int n_chunks);

}  // namespace unisono::pipeline
