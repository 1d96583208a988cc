#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/store/store.h"

namespace unisono::store {

/// Calls the callbacks of watches in the order of the changes, on a separate thread that starts
/// with the first watch. Owned by the store. Thread-safe.
class WatchDispatcher {
 public:
  WatchDispatcher() = default;

  /// All watches must have ended.
  ~WatchDispatcher();

  WatchDispatcher(const WatchDispatcher&) = delete;
  WatchDispatcher& operator=(const WatchDispatcher&) = delete;
  WatchDispatcher(WatchDispatcher&&) = delete;
  WatchDispatcher& operator=(WatchDispatcher&&) = delete;

  /// The dispatcher must outlive the watch. Throws Error(kSystem) if no thread can be started.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key, WatchCallback on_change)
      UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_watched(const std::string& key) UNISONO_EXCLUDES(mutex_);

  /// Queues the change for the watches of the key; does not block. A watch with 65536 pending
  /// changes merges later changes into the last.
  void tell(const KeyChange& change) UNISONO_EXCLUDES(mutex_);

 private:
  class Registration;

  // Increases, so that ids are also in the order in which the watches began.
  using WatchId = std::uint64_t;

  struct Watcher {
    std::string key;
    WatchCallback on_change;
    std::deque<KeyChange> pending;
  };

  void start_thread_once() UNISONO_REQUIRES(mutex_);
  void run() UNISONO_EXCLUDES(mutex_);
  void call_next() UNISONO_REQUIRES(mutex_);
  void end(WatchId id) UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  Condition has_work_;
  Condition call_ended_;
  std::map<WatchId, std::shared_ptr<Watcher>> watchers_ UNISONO_GUARDED_BY(mutex_);
  // Watches with a pending callback; some may have ended since.
  std::deque<WatchId> due_ UNISONO_GUARDED_BY(mutex_);
  WatchId last_id_ UNISONO_GUARDED_BY(mutex_) = 0;
  WatchId running_id_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

/// A watch for stores that do not push changes: polls the value every 20 ms on a separate thread.
/// The destructor stops the thread. The thread ends if the store fails; kTimeout is ignored.
class PollingWatch final : public Watch {
 public:
  /// `store` must outlive the watch. Throws the errors of Store::try_get().
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
