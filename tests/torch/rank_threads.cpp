#include "rank_threads.h"

#include <memory>

#include <ATen/Parallel.h>
#include <torch/types.h>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::testing {

namespace {

// LibTorch's math library chooses its code at the first use. Where threads are the first, all at
// once, one of them may compute with other bits: seen in one of 25 runs.
void use_math_once() {
  (void)torch::tanh(torch::linear(torch::ones({2, 4}), torch::ones({4, 4}), torch::ones({4})));
}

}  // namespace

void run_ranks(int world_size, const test::RankMain& body) {
  use_math_once();
  test::run_sharing_ranks(test::one_node(world_size),
                          [&](const std::shared_ptr<ProcessGroup>& group) {
                            at::set_num_threads(1);
                            body(group);
                          });
}

}  // namespace unisono::testing
