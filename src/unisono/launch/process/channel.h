#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/launch/messages.h"

namespace unisono::launch {

/// A message with the file descriptors that were sent with it.
struct Received {
  Message message;
  std::vector<Fd> fds;
};

/// One end of the socket between agent and guardian. The socket keeps message boundaries
/// (SOCK_SEQPACKET), carries file descriptors, and reports the end of the other process.
class Channel {
 public:
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  /// Returns both ends, which are closed on exec. Throws Error(kSystem).
  [[nodiscard]] static std::pair<Channel, Channel> make_pair();

  [[nodiscard]] int fd() const { return socket_.get(); }

  /// Returns false if the peer has ended, or (without `wait`) if the queue is full. `wait` blocks
  /// until the queue has room.
  bool send(const Message& message, bool wait, std::initializer_list<int> fds = {});

  /// Returns the next message, or std::nullopt if there is no message. Never blocks. Throws
  /// Error(kInternal) for a malformed message.
  [[nodiscard]] std::optional<Received> receive();

  /// Returns true if the peer has received all messages.
  [[nodiscard]] bool is_drained() const;

  /// Returns true once receive() has found that the peer has ended and no message is left.
  [[nodiscard]] bool is_closed() const { return closed_; }

 private:
  Fd socket_;
  bool closed_ = false;
};

}  // namespace unisono::launch
