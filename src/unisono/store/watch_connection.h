#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "unisono/base/mutex.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/timed_mutex.h"
#include "unisono/store/watch.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {

/// A client's second connection to our server, which pushes changes of watched keys, and the thread
/// that reads them. Thread-safe; outlives the watches that it gives.
class WatchConnection {
 public:
  /// Throws as TcpStore's constructor does.
  explicit WatchConnection(const TcpStoreOptions& options);

  ~WatchConnection();

  WatchConnection(const WatchConnection&) = delete;
  WatchConnection& operator=(const WatchConnection&) = delete;
  WatchConnection(WatchConnection&&) = delete;
  WatchConnection& operator=(WatchConnection&&) = delete;

  /// Returns when the server will tell. Throws Error: kPeerLost, kTimeout; Refusal.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key, WatchCallback on_change);

 private:
  class KeyWatch;

  void unwatch(const std::string& key) noexcept;
  void wait_for_answer(std::uint64_t number) UNISONO_EXCLUDES(mutex_);
  void read() UNISONO_EXCLUDES(mutex_);
  void read_notice();

  std::chrono::milliseconds io_timeout_;
  StoreChannel channel_;  // Requests are sent by who holds the mutex; the thread reads.
  WatchDispatcher dispatcher_;
  TimedMutex connection_mutex_;
  std::uint64_t n_asked_ = 0;  // Belongs to who holds the mutex.
  Mutex mutex_;
  Condition answered_;
  std::uint64_t n_answered_ UNISONO_GUARDED_BY(mutex_) = 0;
  std::map<std::uint64_t, std::string> refused_ UNISONO_GUARDED_BY(mutex_);  // Of those answered.
  std::string closed_because_ UNISONO_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace unisono::store
