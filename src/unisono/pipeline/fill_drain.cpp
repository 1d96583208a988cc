#include <vector>

#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/placement.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

Schedule fill_drain(int n_ranks, int n_chunks) {
  check_n_chunks(n_chunks);
  Schedule schedule{
      .n_chunks = n_chunks, .rank_of_stage = loop_placement(n_ranks, 1), .orders = {}};
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::vector<Action>& order = schedule.orders.emplace_back();
    for (const ActionKind kind : {ActionKind::kForward, ActionKind::kBackward}) {
      for (int chunk = 0; chunk < n_chunks; ++chunk) {
        order.push_back({.kind = kind, .stage = rank, .chunk = chunk});
      }
    }
  }
  return schedule;
}

}  // namespace unisono::pipeline
