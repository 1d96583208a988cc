#include "connect.h"

#include <chrono>
#include <memory>
#include <string>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/store/prefix_store.h"

#include "c10d_store.h"

namespace unisono::python {

std::shared_ptr<ProcessGroup> connect(const GroupPlan& plan) {
  const auto store = std::make_shared<C10dStore>(plan.store);
  if (plan.parent != nullptr) {
    // Ranks count the groups they make, so two groups without common ranks may have one name.
    const std::string first = std::to_string(plan.parent_ranks.front());
    store::PrefixStore part("of_rank_" + first + "/", store);
    return plan.parent->new_group(plan.parent_ranks, part, {.timeout = plan.timeout});
  }
  InitOptions options;
  options.rank = plan.rank;
  options.world_size = plan.world_size;
  options.timeout = plan.timeout;
  options.store = store;
  options.connect_again = [theirs = plan.store](std::chrono::milliseconds timeout) {
    return C10dStore::clone_of(theirs, timeout);
  };
  return create_process_group(options);
}

}  // namespace unisono::python
