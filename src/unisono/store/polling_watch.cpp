#include "unisono/store/polling_watch.h"

#include <chrono>
#include <exception>
#include <optional>
#include <string>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/thread.h"

namespace unisono::store {
namespace {

constexpr std::chrono::milliseconds kInterval{20};

}  // namespace

PollingWatch::PollingWatch(Store& store, const std::string& key, WatchCallback on_change)
    : store_(store), key_(key), on_change_(std::move(on_change)), value_(store.try_get(key)) {
  thread_ = start_thread("unisono-watch", "can't watch a store's key", [this] { poll(); });
}

PollingWatch::~PollingWatch() {
  pause_.end();
  thread_.join();
}

void PollingWatch::poll() {
  while (pause_.wait_until(Deadline::after(kInterval))) {
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

}  // namespace unisono::store
