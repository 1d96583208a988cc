#include "rank_threads.h"

#include <memory>
#include <string>
#include <vector>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::testing {
namespace {

// LibTorch's math library selects its code at the first use. If several threads make the first use
// at the same time, one thread may compute different bits: observed in 1 of 25 runs.
void use_math_once() {
  (void)torch::tanh(torch::linear(torch::ones({2, 4}), torch::ones({4, 4}), torch::ones({4})));
}

}  // namespace

void run_ranks(int world_size, const test::RankMain& body) {
  run_ranks(test::one_node(world_size).nodes, body);
}

void run_ranks(const std::vector<std::string>& nodes, const test::RankMain& body) {
  use_math_once();
  test::run_sharing_ranks({.nodes = nodes}, [&](const std::shared_ptr<ProcessGroup>& group) {
    at::set_num_threads(1);
    body(group);
  });
}

}  // namespace unisono::testing
