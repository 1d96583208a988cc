#pragma once

#include <memory>
#include <string>

#include "unisono/base/mutex.h"
#include "unisono/store/change.h"
#include "unisono/store/limits.h"
#include "unisono/store/map_store.h"
#include "unisono/store/store_map.h"
#include "unisono/store/watch.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {

/// A store within this process: its ranks are threads that share the object. Thread-safe; a wait
/// holds nobody up.
///
/// A call that adds to what is no number, or would exceed the limits, throws
/// Error(kInvalidArgument) and changes nothing.
///
/// watch() tells of each change, in order, from one thread of the store.
class HashStore final : public MapStore {
 public:
  explicit HashStore(const Limits& limits = {});

  /// No call is under way and no watch is left.
  ~HashStore() override;

  HashStore(const HashStore&) = delete;
  HashStore& operator=(const HashStore&) = delete;
  HashStore(HashStore&&) = delete;
  HashStore& operator=(HashStore&&) = delete;

  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key,
                                             WatchCallback on_change) override;

 private:
  bool run(const Call& call, const Attempt& attempt) override UNISONO_EXCLUDES(mutex_);
  void carry_out(Change change, ClientId client) UNISONO_REQUIRES(mutex_);
  void take_step(Step step, ClientId client) UNISONO_REQUIRES(mutex_);

  WatchDispatcher watches_;
  Mutex mutex_;
  Condition changed_;
  StoreMap map_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::store
