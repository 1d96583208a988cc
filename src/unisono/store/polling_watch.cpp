#include "unisono/store/polling_watch.h"

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"

namespace unisono::store {

PollingWatch::PollingWatch(Store& store, const std::string& key, WatchCallback on_change)
    : store_(store), key_(key), on_change_(std::move(on_change)), value_(store.try_get(key)) {
  thread_ = start_thread("unisono-watch", "can't watch a store's key", [this] { poll(); });
}

PollingWatch::~PollingWatch() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  stopped_.notify_one();
  thread_.join();
}

void PollingWatch::poll() {
  while (pause()) {
    try {
      std::optional<std::string> value = store_.try_get(key_);
      if (value != value_) {
        std::optional<std::string> before = std::exchange(value_, std::move(value));
        on_change_({.key = key_, .before = std::move(before), .after = value_});
      }
    } catch (const Error& error) {
      // Others may use the store for longer than it waits for its turn.
      if (error.code() != ErrorCode::kTimeout) {
        return;
      }
    } catch (const std::exception&) {
      return;
    }
  }
}

// False when the watch ends.
bool PollingWatch::pause() {
  const Deadline next = Deadline::after(std::chrono::milliseconds(20));
  const MutexLock lock(mutex_);
  while (!is_stopped_ && stopped_.wait_until(mutex_, next.time())) {
  }
  return !is_stopped_;
}

}  // namespace unisono::store
