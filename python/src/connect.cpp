#include "connect.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/store/prefix_store.h"
#include "unisono/store/store.h"

#include "c10d_store.h"

namespace unisono::python {

namespace {

// Keys that no group before has used. A program may make a group under one name again, as after
// destroy_process_group() under a launcher whose store stays: each rank counts how often it has
// come, which is as often as the others.
std::string keys_of_this_time(store::Store& store, const std::string& name, int rank) {
  const std::int64_t time = store.add(name + "/times/" + std::to_string(rank), 1);
  return name + "/" + std::to_string(time);
}

}  // namespace

std::shared_ptr<ProcessGroup> connect(const GroupPlan& plan) {
  const auto store = std::make_shared<C10dStore>(plan.store);
  if (plan.parent != nullptr) {
    // Ranks count the groups they make, so two groups without common ranks may have one name.
    const std::string name = "of_rank_" + std::to_string(plan.parent_ranks.front());
    store::PrefixStore part(keys_of_this_time(*store, name, plan.rank), store);
    return plan.parent->new_group(plan.parent_ranks, part, {.timeout = plan.timeout});
  }
  const std::string prefix = keys_of_this_time(*store, "world", plan.rank);
  InitOptions options;
  options.rank = plan.rank;
  options.world_size = plan.world_size;
  options.timeout = plan.timeout;
  options.store = std::make_shared<store::PrefixStore>(prefix, store);
  options.connect_again = [theirs = plan.store, prefix](std::chrono::milliseconds timeout) {
    return std::make_shared<store::PrefixStore>(prefix, C10dStore::clone_of(theirs, timeout));
  };
  return create_process_group(options);
}

}  // namespace unisono::python
