#pragma once

#include <initializer_list>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/fd.h"
#include "unisono/launch/process/protocol.h"

namespace unisono::launch {

/// A message with the descriptors that came along.
struct Received {
  Message message;
  std::vector<Fd> fds;
};

/// One end of the socket between agent and guardian. It keeps message boundaries
/// (SOCK_SEQPACKET), carries descriptors, and tells each side that the other is gone.
class Channel {
 public:
  explicit Channel(Fd socket) : socket_(std::move(socket)) {}

  /// Both ends, closed on exec.
  [[nodiscard]] static std::pair<Channel, Channel> make_pair();

  [[nodiscard]] int fd() const { return socket_.get(); }

  /// Returns false when the other side is gone, or (with `wait` false) when its queue is full.
  bool send(const Message& message, bool wait, std::initializer_list<int> fds = {});

  /// The next message, if one is there. Never waits.
  [[nodiscard]] std::optional<Received> receive();

  /// Whether the other side has received all that was sent to it.
  [[nodiscard]] bool is_drained() const;

  /// True once receive() found that the other side is gone and nothing is left to read.
  [[nodiscard]] bool is_closed() const { return closed_; }

 private:
  Fd socket_;
  bool closed_ = false;
};

}  // namespace unisono::launch
