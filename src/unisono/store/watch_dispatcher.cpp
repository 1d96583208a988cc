#include "unisono/store/watch_dispatcher.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"

namespace unisono::store {
namespace {

constexpr std::size_t kMaxPending = 65'536;

}  // namespace

class WatchDispatcher::Registration final : public Watch {
 public:
  Registration(WatchDispatcher& dispatcher, WatchId id) : dispatcher_(dispatcher), id_(id) {}

  ~Registration() override { dispatcher_.end(id_); }

  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;
  Registration(Registration&&) = delete;
  Registration& operator=(Registration&&) = delete;

 private:
  WatchDispatcher& dispatcher_;
  WatchId id_;
};

WatchDispatcher::~WatchDispatcher() {
  {
    const MutexLock lock(mutex_);
    is_stopped_ = true;
  }
  has_work_.notify_one();
  if (thread_.joinable()) {
    thread_.join();
  }
}

std::unique_ptr<Watch> WatchDispatcher::watch(const std::string& key, WatchCallback on_change) {
  WatchId id = 0;
  {
    const MutexLock lock(mutex_);
    start_thread_once();
    id = ++last_id_;
    watchers_.emplace(id,
                      std::make_shared<Watcher>(
                          Watcher{.key = key, .on_change = std::move(on_change), .pending = {}}));
  }
  return std::make_unique<Registration>(*this, id);
}

bool WatchDispatcher::is_watched(const std::string& key) {
  const MutexLock lock(mutex_);
  return std::ranges::any_of(watchers_,
                             [&](const auto& entry) { return entry.second->key == key; });
}

void WatchDispatcher::tell(const KeyChange& change) {
  {
    const MutexLock lock(mutex_);
    for (const auto& [id, watcher] : watchers_) {
      if (watcher->key != change.key) {
        continue;
      }
      if (watcher->pending.size() == kMaxPending) {
        watcher->pending.back().after = change.after;
        continue;
      }
      watcher->pending.push_back(change);
      due_.push_back(id);
    }
  }
  has_work_.notify_one();
}

// Called with the lock held, which the new thread acquires first. This happens once, while no other
// thread waits for the lock.
void WatchDispatcher::start_thread_once() {
  if (!thread_.joinable()) {
    thread_ = start_thread("unisono-watch", "can't watch a store's key", [this] { run(); });
  }
}

void WatchDispatcher::run() {
  const MutexLock lock(mutex_);
  while (!is_stopped_) {
    if (due_.empty()) {
      has_work_.wait(mutex_);
    } else {
      call_next();
    }
  }
}

void WatchDispatcher::call_next() {
  const auto found = watchers_.find(due_.front());
  due_.pop_front();
  if (found == watchers_.end()) {
    return;
  }
  // Keeps the callback alive while it runs, even if its watch ends.
  const std::shared_ptr<Watcher> watcher = found->second;
  const KeyChange change = std::move(watcher->pending.front());
  watcher->pending.pop_front();
  running_id_ = found->first;
  mutex_.unlock();
  watcher->on_change(change);
  mutex_.lock();
  running_id_ = 0;
  call_ended_.notify_all();
}

void WatchDispatcher::end(WatchId id) {
  const MutexLock lock(mutex_);
  watchers_.erase(id);
  while (running_id_ == id) {
    call_ended_.wait(mutex_);
  }
}

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
      // Other threads may use the store for longer than io_timeout.
      if (error.code() != ErrorCode::kTimeout) {
        return;
      }
    } catch (const std::exception&) {
      return;
    }
  }
}

}  // namespace unisono::store
