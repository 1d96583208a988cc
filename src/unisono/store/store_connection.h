#pragma once

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <string>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/store/handshake.h"
#include "unisono/store/store_channel.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/timed_mutex.h"

namespace unisono::store {

/// A client's connection to a store's server, on which requests of all threads take turns.
///
/// Whatever goes wrong in the middle of an exchange leaves the connection at an unknown place:
/// later calls throw Error(kClosed) with the cause.
class StoreConnection {
 public:
  /// Reads a reply.
  using Body = std::function<void(StoreChannel&)>;

  /// Throws as TcpStore's constructor does.
  StoreConnection(const TcpStoreOptions& options, Deadline deadline);

  /// Sends a request, and reads its reply if it has one. Throws Refusal where the server refuses
  /// it; the connection stays usable.
  void request(const ByteWriter& message, const Body& read_reply);

  /// Sends `wait`, and when that is over `then`. False when the deadline passed before; then a
  /// reply to `then` was read all the same where the server is ours. An interrupted wait leaves the
  /// connection as good as before, where the server answers at once.
  [[nodiscard]] bool wait_and_read(const ByteWriter& wait,
                                   const ByteWriter& then,
                                   Deadline deadline,
                                   const Body& read_reply);

  /// True where PyTorch's server may be on the other side.
  [[nodiscard]] bool is_plain() const { return is_plain_; }

  /// The name that the server has for its job; empty where it has none.
  [[nodiscard]] const std::string& job() const { return job_; }

  /// For replies that are due at once.
  [[nodiscard]] Deadline io_deadline() const { return Deadline::after(io_timeout_); }

  [[nodiscard]] const std::string& peer() const { return channel_.peer(); }

  [[nodiscard]] int fd() const { return channel_.fd(); }

 private:
  StoreConnection(Handshake handshake, std::chrono::milliseconds io_timeout);

  void use(Deadline deadline, const Body& body);
  void send(StoreChannel& channel, const ByteWriter& message);
  // Returns the first byte of the answer.
  [[nodiscard]] std::uint8_t cancel(StoreChannel& channel, const std::exception_ptr& interruption);
  // Who is interrupted takes the wait back as well, so that the connection can be used again.
  [[nodiscard]] bool end_wait(StoreChannel& channel,
                              Deadline deadline,
                              const Body& read_rest,
                              std::exception_ptr& interruption);

  std::chrono::milliseconds io_timeout_;
  bool is_plain_;
  std::string job_;
  TimedMutex connection_mutex_;
  // These belong to who holds the mutex.
  StoreChannel channel_;
  std::string closed_because_;
};

}  // namespace unisono::store
