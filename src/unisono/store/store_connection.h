#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <thread>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/store/store.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/timed_mutex.h"
#include "unisono/store/watch_dispatcher.h"

namespace unisono::store {

/// A client's connection to a store's server, shared by the requests of all threads, one at a time.
///
/// Owned by a TcpStore. Thread-safe. Any error in the middle of an exchange, except a Refusal,
/// leaves the connection in an unknown state: later calls throw Error(kClosed) with the cause.
class StoreConnection {
 public:
  /// Reads a reply from the channel.
  using Body = std::function<void(StoreChannel&)>;

  /// Throws the errors of TcpStore's constructor.
  StoreConnection(const TcpStoreOptions& options, Deadline deadline);

  /// Sends a request and reads the reply if `read_reply` is not null. Throws Refusal if the server
  /// refuses the request; the connection stays usable.
  void request(const ByteWriter& message, const Body& read_reply);

  /// Sends `wait`, then `then` once the wait is over, and reads the reply of the latter. Returns
  /// false if the deadline passed before; with Unisono's server a reply to `then` was read
  /// nevertheless. An interrupted wait leaves the connection usable if the server replies at once.
  [[nodiscard]] bool wait_and_read(const ByteWriter& wait,
                                   const ByteWriter& then,
                                   Deadline deadline,
                                   const Body& read_reply);

  /// Returns true if the server may be PyTorch's.
  [[nodiscard]] bool is_plain() const { return is_plain_; }

  /// The server's name of its job, or "".
  [[nodiscard]] const std::string& job() const { return job_; }

  /// Deadline of replies that are due at once.
  [[nodiscard]] Deadline io_deadline() const { return Deadline::after(io_timeout_); }

  [[nodiscard]] const std::string& peer() const { return channel_.peer(); }

  [[nodiscard]] int fd() const { return channel_.fd(); }

 private:
  StoreConnection(Handshake handshake, std::chrono::milliseconds io_timeout);

  void use(Deadline deadline, const Body& body);
  void send(StoreChannel& channel, const ByteWriter& message);
  // Returns the first byte of the reply.
  [[nodiscard]] std::uint8_t cancel(StoreChannel& channel, const std::exception_ptr& interruption);
  // Cancels the wait after an interruption too, so that the connection stays usable.
  [[nodiscard]] bool end_wait(StoreChannel& channel,
                              Deadline deadline,
                              const Body& read_rest,
                              std::exception_ptr& interruption);

  std::chrono::milliseconds io_timeout_;
  bool is_plain_;
  std::string job_;
  TimedMutex connection_mutex_;
  // Guarded by connection_mutex_.
  StoreChannel channel_;
  std::string closed_because_;
};

/// A client's second connection to a Unisono server, on which the server pushes changes of watched
/// keys, and the thread that reads the changes.
///
/// Owned by a TcpStore; must outlive the watches. Thread-safe. If the connection fails, watches
/// report no more changes and watch() throws.
class WatchConnection {
 public:
  /// Throws the errors of TcpStore's constructor.
  explicit WatchConnection(const TcpStoreOptions& options);

  ~WatchConnection();

  WatchConnection(const WatchConnection&) = delete;
  WatchConnection& operator=(const WatchConnection&) = delete;
  WatchConnection(WatchConnection&&) = delete;
  WatchConnection& operator=(WatchConnection&&) = delete;

  /// Returns once the server has registered the watch. Throws Error(kPeerLost), Error(kTimeout),
  /// Refusal.
  [[nodiscard]] std::unique_ptr<Watch> watch(const std::string& key, WatchCallback on_change);

 private:
  class KeyWatch;

  void unwatch(const std::string& key) noexcept;
  void wait_for_answer(std::uint64_t number) UNISONO_EXCLUDES(mutex_);
  void read() UNISONO_EXCLUDES(mutex_);
  void read_notice();

  std::chrono::milliseconds io_timeout_;
  StoreChannel channel_;  // The holder of connection_mutex_ sends requests; the thread reads.
  WatchDispatcher dispatcher_;
  TimedMutex connection_mutex_;
  std::uint64_t n_asked_ = 0;  // Guarded by connection_mutex_.
  Mutex mutex_;
  Condition answered_;
  std::uint64_t n_answered_ UNISONO_GUARDED_BY(mutex_) = 0;
  // Reasons of refused requests, by request number.
  std::map<std::uint64_t, std::string> refused_ UNISONO_GUARDED_BY(mutex_);
  std::string closed_because_ UNISONO_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace unisono::store
