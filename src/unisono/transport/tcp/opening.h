#pragma once

#include <poll.h>

#include <functional>
#include <memory>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/net/hello.h"
#include "unisono/transport/rank_address.h"

namespace unisono::tcp {

/// A connection to a rank of another node that is being opened. Never blocks.
class Opening {
 public:
  Opening() = default;
  virtual ~Opening() = default;
  Opening(const Opening&) = delete;
  Opening& operator=(const Opening&) = delete;
  Opening(Opening&&) = delete;
  Opening& operator=(Opening&&) = delete;

  /// Takes it as far as it comes. Returns the socket once the hello is done, a closed one until
  /// then.
  ///
  /// Throws Error(kPeerLost) for a rank that can't be reached, and the hello's errors, with the
  /// rank's name.
  [[nodiscard]] virtual Fd progress() = 0;

  /// What poll(2) is to wait for.
  [[nodiscard]] virtual pollfd poll() const = 0;

  /// When progress() is to be called at the latest.
  [[nodiscard]] virtual Deadline next_step() const = 0;
};

/// Opens it from this side. `member` outlives it; `secret` and `mine` are for the hello.
[[nodiscard]] std::unique_ptr<Opening> dial(const transport::RankAddress& member,
                                            const std::string& secret,
                                            const net::HelloInfo& mine);

/// Waits until the other side has opened it, and looks now and then whether `member`, which
/// outlives it, still listens. `take_delivered` returns the socket once it is there.
[[nodiscard]] std::unique_ptr<Opening> expect(const transport::RankAddress& member,
                                              std::function<Fd()> take_delivered);

}  // namespace unisono::tcp
