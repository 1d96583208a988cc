#include "unisono/store/hash_store.h"

#include <fmt/format.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/store/change.h"
#include "unisono/store/limits.h"
#include "unisono/store/map_call.h"
#include "unisono/store/map_store.h"
#include "unisono/store/sizes.h"
#include "unisono/store/store_map.h"
#include "unisono/store/watch.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {
namespace {

std::optional<std::string> value_of(const StoreMap& map, const std::string& key) {
  const std::string* value = map.find(key);
  return value == nullptr ? std::nullopt : std::optional(*value);
}

}  // namespace

class HashStore::Impl {
 public:
  explicit Impl(const HashStore& store) : store_(store) {}

  [[nodiscard]] WatchDispatcher& watches() { return watches_; }

  bool run(const MapCall& call) UNISONO_EXCLUDES(mutex_);

 private:
  void carry_out(Change change, ClientId client) UNISONO_REQUIRES(mutex_);
  void take_step(Step step, ClientId client) UNISONO_REQUIRES(mutex_);

  const HashStore& store_;
  WatchDispatcher watches_;
  Mutex mutex_;
  Condition changed_;
  StoreMap map_ UNISONO_GUARDED_BY(mutex_);
};

// No call is ever held up, so any time will do.
HashStore::HashStore(const Limits& limits)
    : MapStore("hash store", limits, std::chrono::seconds(30)),
      impl_(std::make_unique<Impl>(*this)) {}

HashStore::~HashStore() = default;

std::unique_ptr<Watch> HashStore::watch(const std::string& key, WatchCallback on_change) {
  check_sizes(limits(), key, 0);
  return impl_->watches().watch(key, std::move(on_change));
}

bool HashStore::run(const MapCall& call) {
  return impl_->run(call);
}

bool HashStore::Impl::run(const MapCall& call) {
  const MutexLock lock(mutex_);
  for (;;) {
    Change change;
    const bool is_done = call.attempt(map_, change);
    const bool has_changed = !change.empty();
    if (has_changed) {
      carry_out(std::move(change), call.client);
    }
    if (is_done || (!has_changed && call.deadline.has_passed())) {
      map_.cancel(call.client);
      return is_done;
    }
    if (!has_changed) {
      if (call.deadline.is_never()) {
        changed_.wait(mutex_);
      } else {
        (void)changed_.wait_until(mutex_, call.deadline.time());
      }
    }
  }
}

void HashStore::Impl::carry_out(Change change, ClientId client) {
  const std::size_t n_new = n_new_bytes(change);
  if (n_new > 0 && map_.n_bytes() + n_new > store_.limits().max_store_bytes) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: holds {} bytes and would get {} more; at most {} are allowed",
                            store_.name(),
                            map_.n_bytes(),
                            n_new,
                            store_.limits().max_store_bytes));
  }
  bool may_end_calls = false;
  for (Step& step : change) {
    may_end_calls = may_end_calls || step.kind == StepKind::kPush;
    take_step(std::move(step), client);
  }
  // All look for themselves: one that the map does not wake may want what was pushed, too.
  if (!map_.take_woken().empty() || may_end_calls) {
    changed_.notify_all();
  }
}

// Watchers are told under the lock, which keeps the order; their callbacks run elsewhere.
void HashStore::Impl::take_step(Step step, ClientId client) {
  if (!watches_.is_watched(step.key)) {
    apply(map_, std::move(step), client);
    return;
  }
  KeyChange change{.key = step.key, .before = value_of(map_, step.key), .after = std::nullopt};
  apply(map_, std::move(step), client);
  change.after = value_of(map_, change.key);
  if (change.before != change.after) {
    watches_.tell(change);
  }
}

}  // namespace unisono::store
