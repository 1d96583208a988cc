#include "connect.h"

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/store/store.h"

#include "c10d_store.h"
#include "core_store.h"
#include "rendezvous_generation.h"

namespace unisono::python {

namespace {

// Returns a prefix of keys that no earlier group has used. A program may create a group repeatedly
// under the same name: each rank counts the calls, and the counts of all ranks agree.
std::string keys_of_this_time(store::Store& store, const std::string& name, int rank) {
  const std::int64_t time = store.add(name + "/times/" + std::to_string(rank), 1);
  return name + "/" + std::to_string(time);
}

// Returns the core's own store if there is one below torch's store; otherwise wraps torch's store.
StoreAccess access_to(const c10::intrusive_ptr<c10d::Store>& theirs, InitOptions& options) {
  if (std::optional<StoreAccess> access = find_access(theirs)) {
    options.store_secret = access->secret;
    options.store_local_ip = access->local_ip;
    options.store_fd = access->fd;
    return *std::move(access);
  }
  return {.store = std::make_shared<C10dStore>(theirs),
          .connect_again = [theirs](std::chrono::milliseconds timeout) {
            return C10dStore::clone_of(theirs, timeout);
          }};
}

}  // namespace

std::shared_ptr<ProcessGroup> connect(const GroupPlan& plan) {
  InitOptions options;
  const StoreAccess access = access_to(plan.store, options);
  const std::shared_ptr<store::Store>& store = access.store;
  if (plan.parent != nullptr) {
    // Ranks count the groups that they create, so two groups without common ranks may have the same
    // name.
    const std::string name = "of_rank_" + std::to_string(plan.parent_ranks.front());
    store::PrefixStore part(keys_of_this_time(*store, name, plan.rank), store);
    return plan.parent->new_group(plan.parent_ranks, part, {.timeout = plan.timeout});
  }
  const RendezvousGeneration time = find_generation(*store, "world", plan.rank);
  const StoreAccess part = in_part(access, time.prefix);
  options.rank = plan.rank;
  options.world_size = plan.world_size;
  options.timeout = plan.timeout;
  options.store = part.store;
  options.connect_again = part.connect_again;
  try {
    return create_process_group(options);
  } catch (const Error& error) {
    throw Error(explained(error, time));
  }
}

}  // namespace unisono::python
