#pragma once

#include <optional>
#include <string>
#include <thread>

#include "unisono/base/mutex.h"
#include "unisono/store/store.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// For stores that tell nobody of changes: asks for the value every 20 ms, from a thread of its
/// own.
class PollingWatch final : public Watch {
 public:
  /// `store` outlives it. Throws as Store::try_get() does.
  PollingWatch(Store& store, const std::string& key, WatchCallback on_change);

  ~PollingWatch() override;

  PollingWatch(const PollingWatch&) = delete;
  PollingWatch& operator=(const PollingWatch&) = delete;
  PollingWatch(PollingWatch&&) = delete;
  PollingWatch& operator=(PollingWatch&&) = delete;

 private:
  void poll();
  [[nodiscard]] bool pause() UNISONO_EXCLUDES(mutex_);

  Store& store_;
  std::string key_;
  WatchCallback on_change_;
  std::optional<std::string> value_;
  Mutex mutex_;
  Condition stopped_;
  bool is_stopped_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace unisono::store
