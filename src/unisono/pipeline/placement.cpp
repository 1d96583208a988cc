#include "unisono/pipeline/placement.h"

#include <fmt/format.h>

#include <vector>

#include "unisono/base/error.h"

namespace unisono::pipeline {
namespace {

void check_positive(int number, const char* what) {
  if (number < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("pipeline: {} {}: at least 1 is needed", number, what));
  }
}

}  // namespace

std::vector<int> loop_placement(int n_ranks, int stages_per_rank) {
  check_positive(n_ranks, "ranks");
  check_positive(stages_per_rank, "stages per rank");
  std::vector<int> rank_of_stage;
  for (int round = 0; round < stages_per_rank; ++round) {
    for (int rank = 0; rank < n_ranks; ++rank) {
      rank_of_stage.push_back(rank);
    }
  }
  return rank_of_stage;
}

std::vector<int> v_placement(int n_ranks) {
  std::vector<int> rank_of_stage = loop_placement(n_ranks, 1);
  for (int rank = n_ranks - 1; rank >= 0; --rank) {
    rank_of_stage.push_back(rank);
  }
  return rank_of_stage;
}

void check_n_chunks(int n_chunks) {
  check_positive(n_chunks, "chunks");
}

}  // namespace unisono::pipeline
