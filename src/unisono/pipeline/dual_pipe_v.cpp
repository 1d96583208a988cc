#include <algorithm>
#include <deque>
#include <map>
#include <utility>
#include <vector>

#include "unisono/pipeline/as_index.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/placement.h"
#include "unisono/pipeline/schedule.h"

namespace unisono::pipeline {
namespace {

// A rank's order, of which each pass takes the chunks one after the other.
class Writer {
 public:
  void forward(int stage) {
    order_.push_back({.kind = ActionKind::kForward, .stage = stage, .chunk = n_forward_[stage]++});
  }

  // At once, or the input gradients alone: the weight gradients are owed then.
  void backward(int stage, bool is_split) {
    const int chunk = n_backward_[stage]++;
    order_.push_back({.kind = is_split ? ActionKind::kBackwardInput : ActionKind::kBackward,
                      .stage = stage,
                      .chunk = chunk});
    if (is_split) {
      owed_.push_back({.kind = ActionKind::kBackwardWeight, .stage = stage, .chunk = chunk});
    }
  }

  // The oldest that are owed, if any are.
  void weights() {
    if (!owed_.empty()) {
      order_.push_back(owed_.front());
      owed_.pop_front();
    }
  }

  // Without the chunks from `n_chunks` on.
  std::vector<Action> take(int n_chunks) {
    std::erase_if(order_, [&](const Action& action) { return action.chunk >= n_chunks; });
    return std::move(order_);
  }

 private:
  std::vector<Action> order_;
  std::deque<Action> owed_;
  std::map<int, int> n_forward_;
  std::map<int, int> n_backward_;
};

void write_start(Writer& order, int rank, int n_behind, int near, int far) {
  for (int i = 0; i < 2 * n_behind; ++i) {
    order.forward(near);
  }
  for (int i = 0; i <= rank; ++i) {
    order.forward(near);
    order.forward(far);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.backward(far, true);
    order.weights();
    order.forward(far);
  }
}

// Here a rank does nothing but what overlaps: the forward of a stage along with the other's
// backward.
void write_middle(Writer& order, int n_pairs, int n_behind, int near, int far) {
  for (int i = 0; i < n_pairs; ++i) {
    order.forward(near);
    order.backward(far, false);
    order.forward(far);
    order.backward(near, false);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.backward(far, false);
    order.forward(far);
    order.backward(near, false);
  }
}

// Halfway the weight gradients begin to be put off: what comes later fills the end.
void write_end(Writer& order, int rank, int n_behind, int near, int far) {
  const int n_whole = rank + 1;  // Backwards before the first that is split.
  for (int i = 0; i <= rank; ++i) {
    order.backward(far, 2 * i >= n_whole);
    order.backward(near, 2 * i + 1 >= n_whole);
  }
  for (int i = 0; i < n_behind; ++i) {
    order.weights();
    order.backward(near, true);
  }
  for (int i = 0; i <= rank; ++i) {
    order.weights();
  }
}

}  // namespace

Schedule dual_pipe_v(int n_ranks, int n_chunks) {
  check_n_chunks(n_chunks);
  Schedule schedule{.n_chunks = n_chunks, .rank_of_stage = v_placement(n_ranks), .orders = {}};
  // With fewer chunks than stages the rest of them is left out.
  const int n_planned = std::max(n_chunks, 2 * n_ranks);
  for (int rank = 0; rank < n_ranks; ++rank) {
    const int n_behind = n_ranks - 1 - rank;
    const int near = rank;
    const int far = 2 * n_ranks - 1 - rank;
    Writer order;
    write_start(order, rank, n_behind, near, far);
    write_middle(order, n_planned - 2 * n_ranks + rank + 1, n_behind, near, far);
    write_end(order, rank, n_behind, near, far);
    schedule.orders.push_back(order.take(n_chunks));
  }
  return schedule;
}

}  // namespace unisono::pipeline
