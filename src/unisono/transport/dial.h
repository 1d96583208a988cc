#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/hello.h"
#include "unisono/transport/rank_table.h"
#include "unisono/transport/stream.h"

namespace unisono::transport {

// Purposes of connections between ranks, as sent in the handshake.

/// Operations of a group. The higher rank of each pair opens the connection; the lower rank dials
/// late.
inline constexpr const char* kDataPurpose = "data";

/// Messages of a group. The rank that first needs the connection opens it.
inline constexpr const char* kMessagePurpose = "messages";

/// Address of a rank of a group.
struct RankAddress {
  int job_rank;          ///< Identifies the rank in the handshake.
  net::Address address;  ///< Address of the rank's data listener.
  std::string name;      ///< For messages: "rank 2 (pid 4123 on node-a)".
};

/// Returns the member's address, with a name for error messages.
[[nodiscard]] RankAddress address_of(const Member& member);

/// Returns the addresses of all ranks, by rank in the group.
[[nodiscard]] std::vector<RankAddress> addresses_of(const RankTable& ranks);

/// Throws Error(kMismatch) unless the peer of a handshake is `rank` and belongs to this job.
void check_answer(const RankAddress& rank, const net::HelloInfo& theirs, const std::string& job);

/// Returns the error for a rank without a listener at the given address. Only ranks that had a
/// connection with that rank can distinguish a clean leave from a crash.
[[nodiscard]] Error nobody_listens(const RankAddress& rank);

/// Sends the accept byte after the handshake: this side keeps the connection. Returns false if the
/// dialing side is gone.
[[nodiscard]] bool send_accept(int fd) noexcept;

/// A connection that this rank opens to a rank of another node: connect, handshake, accept byte.
/// Failed attempts are repeated with growing pauses until the peer accepts.
///
/// Owned by the code that needs the connection, which calls progress() whenever poll() is ready or
/// next_try() has passed, and finally takes the socket. Not thread-safe; no call blocks. Errors
/// that end the dial are thrown by progress().
class Dial {
 public:
  enum class Outcome {
    kNone,        ///< The asking rank still works.
    kWelcomed,    ///< The peer has accepted the connection.
    kTurnedAway,  ///< The peer closed the connection after the handshake. Another attempt follows.
    kRefused      ///< No process listens at the address. Another attempt follows.
  };

  /// Time of the first attempt.
  enum class Start {
    kNow,
    /// After kLateStart: the peer is expected to dial first, so connection failures are not errors.
    kLate
  };

  /// `member`, `secret` and `mine` must outlive the dial. The handshake uses `secret` and `mine`.
  Dial(const RankAddress& member,
       const std::string& secret,
       const net::HelloInfo& mine,
       Start start);

  /// Advances the dial as far as possible without blocking.
  ///
  /// Throws Error(kPeerLost) if the rank cannot be reached, and the errors of the handshake.
  /// Messages contain the rank's name.
  [[nodiscard]] Outcome progress();

  /// Returns the socket, after kWelcomed.
  [[nodiscard]] Fd take() { return std::move(socket_); }

  /// True while an attempt is in progress, false in the pause between attempts.
  [[nodiscard]] bool is_trying() const { return socket_.is_open(); }

  /// The event to poll for while an attempt is in progress.
  [[nodiscard]] pollfd poll() const;

  /// The latest time at which progress() must be called again.
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
  std::chrono::milliseconds pause_{};  // Most recent pause between attempts.
  Deadline reach_patience_;
  Deadline descriptor_patience_ = Deadline::after(kDescriptorPatience);

  Fd socket_;              // Closed between attempts.
  int connect_error_ = 0;  // errno of a connect that failed at once, or 0.
  bool is_connected_ = false;
  net::Hello hello_;
  std::vector<std::byte> output_;  // Bytes of the handshake to send.
};

}  // namespace unisono::transport
