#include <utility>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {

Schedule zero_bubble_h1(int n_ranks, int n_chunks) {
  Schedule schedule = one_f_one_b(n_ranks, n_chunks);
  for (int rank = 0; rank < n_ranks; ++rank) {
    std::vector<Action> order;
    // Rank r puts off the weight gradients of r chunks: the activations that this keeps are those
    // which the first rank has more.
    const int n_put_off = rank;
    int next_weights = 0;
    const auto add_weights = [&] {
      order.push_back(
          {.kind = ActionKind::kBackwardWeight, .stage = rank, .chunk = next_weights++});
    };
    std::vector<Action>& joined = schedule.orders[as_index(rank)];
    for (Action action : joined) {
      if (action.kind == ActionKind::kForward) {
        order.push_back(action);
        continue;
      }
      action.kind = ActionKind::kBackwardInput;
      order.push_back(action);
      if (action.chunk >= n_put_off) {
        add_weights();
      }
    }
    while (next_weights < n_chunks) {
      add_weights();
    }
    joined = std::move(order);
  }
  return schedule;
}

}  // namespace unisono::pipeline
