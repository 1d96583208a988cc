#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/transport/liveness.h"
#include "unisono/transport/rank_address.h"

namespace unisono::transport {

/// Says to who has dialed, after the hello, that the connection is kept. False when the other side
/// is gone.
[[nodiscard]] bool welcome(int fd) noexcept;

/// A connection to a rank of another node that this rank opens: tried again until the other side
/// welcomes it. Never blocks.
class Dial {
 public:
  enum class Outcome {
    kNone,        ///< It goes on.
    kWelcomed,    ///< The other side keeps the connection.
    kTurnedAway,  ///< It does not. Another try comes later.
    kRefused      ///< Nobody listens there. Another try comes later.
  };

  /// When the first try comes.
  enum class Start {
    kNow,
    kLate  ///< The other side is about to dial: this rank does after a while, and need not get on.
  };

  /// `member`, and for the hello `secret` and `mine`, outlive it.
  Dial(const RankAddress& member,
       const std::string& secret,
       const net::HelloInfo& mine,
       Start start);

  /// Takes it as far as it comes.
  ///
  /// Throws Error(kPeerLost) for a rank that can't be reached, and the hello's errors, with the
  /// rank's name.
  [[nodiscard]] Outcome progress();

  /// The connection that is welcome.
  [[nodiscard]] Fd take() { return std::move(socket_); }

  /// Whether a try is under way.
  [[nodiscard]] bool is_trying() const { return socket_.is_open(); }

  /// What poll(2) is to wait for while a try is under way.
  [[nodiscard]] pollfd poll() const;

  /// When progress() is to be called at the latest.
  [[nodiscard]] Deadline next_try() const { return next_try_; }

 private:
  void begin();
  [[nodiscard]] Outcome finish_connect();
  [[nodiscard]] bool exchange_hello();
  [[nodiscard]] Outcome read_welcome();
  void try_again_later();

  const RankAddress& member_;
  const std::string& secret_;
  const net::HelloInfo& mine_;
  Start start_;
  Deadline next_try_;
  std::chrono::milliseconds pause_{};  // Before the last try.
  Deadline reach_patience_;
  Deadline descriptor_patience_ = Deadline::after(kDescriptorPatience);

  Fd socket_;              // Not open between two tries.
  int connect_error_ = 0;  // Known at once.
  bool is_connected_ = false;
  net::Hello hello_;
  std::vector<std::byte> output_;  // Of the hello.
};

}  // namespace unisono::transport
