#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "unisono/base/mutex.h"
#include "unisono/store/watch.h"

namespace unisono::store {

/// Tells those who watch a key of its changes, in the order in which it learned of them, from a
/// thread of its own that starts with the first watch. Thread-safe.
class WatchDispatcher {
 public:
  WatchDispatcher() = default;

  /// All watches have ended before.
  ~WatchDispatcher();

  WatchDispatcher(const WatchDispatcher&) = delete;
  WatchDispatcher& operator=(const WatchDispatcher&) = delete;
  WatchDispatcher(WatchDispatcher&&) = delete;
  WatchDispatcher& operator=(WatchDispatcher&&) = delete;

  /// The dispatcher outlives the watch. Throws Error(kSystem) when there can be no thread.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key, WatchCallback on_change)
      UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] bool is_watched(const std::string& key) UNISONO_EXCLUDES(mutex_);

  /// Returns at once. A watch that is 65536 changes behind gets later ones as one.
  void tell(const KeyChange& change) UNISONO_EXCLUDES(mutex_);

 private:
  class Registration;

  // Grows, so that it also is the order in which watches began.
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
  // Whose callback is due; some may have ended since.
  std::deque<WatchId> due_ UNISONO_GUARDED_BY(mutex_);
  WatchId last_id_ UNISONO_GUARDED_BY(mutex_) = 0;
  WatchId running_id_ UNISONO_GUARDED_BY(mutex_) = 0;
  bool is_stopped_ UNISONO_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace unisono::store
