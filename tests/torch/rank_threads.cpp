#include "rank_threads.h"

#include <memory>

#include <ATen/Parallel.h>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::testing {

void run_ranks(int world_size, const test::RankMain& body) {
  test::run_sharing_ranks(test::one_node(world_size),
                          [&](const std::shared_ptr<ProcessGroup>& group) {
                            at::set_num_threads(1);
                            body(group);
                          });
}

}  // namespace unisono::testing
