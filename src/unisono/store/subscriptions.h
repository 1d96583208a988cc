#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "unisono/base/mutex.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// Who watches which keys. Thread-safe; outlives the watches that it gives.
class Subscriptions {
 public:
  [[nodiscard]] std::unique_ptr<Watch> add(const std::string& key, WatchCallback on_change)
      UNISONO_EXCLUDES(mutex_);

  /// Whether anybody watches the key.
  [[nodiscard]] bool has(const std::string& key) UNISONO_EXCLUDES(mutex_);

  /// Calls all who watch the key. From one thread alone.
  void tell(const KeyChange& change) UNISONO_EXCLUDES(mutex_);

 private:
  class Subscription;

  void remove(const Subscription* subscription) UNISONO_EXCLUDES(mutex_);
  [[nodiscard]] const Subscription* begin_next(const std::string& key,
                                               const std::set<const Subscription*>& told)
      UNISONO_EXCLUDES(mutex_);
  void end() UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition ended_;
  std::multimap<std::string, const Subscription*> by_key_ UNISONO_GUARDED_BY(mutex_);
  // Whose callback runs.
  const Subscription* running_ UNISONO_GUARDED_BY(mutex_) = nullptr;
};

}  // namespace unisono::store
