#include "unisono/collective/canonical_tree.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/kernels/reduce.h"

namespace unisono::collective {
namespace {

void collect_subtrees(std::span<const int> ranks,
                      RankRange range,
                      std::vector<RankRange>& subtrees) {
  const auto first = std::lower_bound(ranks.begin(), ranks.end(), range.lo);
  const auto last = std::lower_bound(first, ranks.end(), range.hi);
  if (last - first == range.size()) {
    subtrees.push_back(range);
  } else if (first != last) {
    const int mid = split_point(range);
    collect_subtrees(ranks, {range.lo, mid}, subtrees);
    collect_subtrees(ranks, {mid, range.hi}, subtrees);
  }
}

class StepBuilder {
 public:
  explicit StepBuilder(std::span<const RankRange> inputs) : inputs_(inputs) {}

  // Returns the index of the value that represents `range`: inputs first, then results of steps.
  int combine(RankRange range) {
    const bool is_input = next_input_ < inputs_.size() && inputs_[next_input_] == range;
    if (is_input) {
      return static_cast<int>(next_input_++);
    }
    UNISONO_CHECK(range.size() > 1, "inputs of a reduction do not make up the canonical tree");
    const int mid = split_point(range);
    const int lhs = combine({range.lo, mid});
    const int rhs = combine({mid, range.hi});
    steps_.push_back({lhs, rhs});
    return static_cast<int>(inputs_.size() + steps_.size()) - 1;
  }

  [[nodiscard]] std::vector<kernels::ReduceStep> take() {
    UNISONO_CHECK(next_input_ == inputs_.size(), "a reduction has inputs outside its tree");
    return std::move(steps_);
  }

 private:
  std::span<const RankRange> inputs_;
  std::size_t next_input_ = 0;
  std::vector<kernels::ReduceStep> steps_;
};

}  // namespace

int split_point(RankRange range) {
  UNISONO_CHECK(range.size() > 1, "a single rank has no split point");
  return range.lo + static_cast<int>(std::bit_floor(static_cast<unsigned>(range.size() - 1)));
}

std::vector<RankRange> leaves_of(RankRange range) {
  std::vector<RankRange> leaves;
  for (int rank = range.lo; rank < range.hi; ++rank) {
    leaves.push_back({.lo = rank, .hi = rank + 1});
  }
  return leaves;
}

std::vector<RankRange> maximal_subtrees(std::span<const int> ranks, int world_size) {
  std::vector<RankRange> subtrees;
  collect_subtrees(ranks, {0, world_size}, subtrees);
  return subtrees;
}

std::vector<kernels::ReduceStep> reduce_steps(std::span<const RankRange> inputs, RankRange whole) {
  StepBuilder builder(inputs);
  builder.combine(whole);
  return builder.take();
}

}  // namespace unisono::collective
