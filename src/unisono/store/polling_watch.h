#pragma once

#include <optional>
#include <string>
#include <thread>

#include "unisono/base/interruptible_pause.h"
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

  Store& store_;
  std::string key_;
  WatchCallback on_change_;
  std::optional<std::string> value_;
  InterruptiblePause pause_;
  std::thread thread_;
};

}  // namespace unisono::store
