#pragma once

#include <poll.h>

#include <chrono>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/transport/dial.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {

/// Which rank of a pair dials the other.
enum class DialingRank {
  kEither,     ///< The rank that first needs the connection.
  kHigherRank  ///< The higher rank. The lower rank dials late, in case the higher rank does not.
};

/// Parameters with which a rank of a group opens connections.
struct DialerParts {
  std::vector<transport::RankAddress> members;  ///< members[r] is rank r.
  std::string secret;                           ///< For the handshake, like `mine`.
  net::HelloInfo mine;
  DialingRank caller;
  transport::MakeStream make_stream;  ///< Makes the stream after the handshake.
  /// If false, there is no connection to wait for, and the dialer holds no descriptor.
  bool has_other_nodes;
};

/// Opens the streams of a group's rank to ranks of other nodes, for a single purpose: a stream per
/// pair, opened by either rank. The accepting rank sends a byte after the handshake. If both ranks
/// of a pair dial at the same time, the higher rank closes the lower rank's connection, and the
/// lower rank waits for the higher rank's.
///
/// Base of PeerTable, which owns the streams. Does not move, because the dials refer to its
/// members. Not thread-safe, except for deliver() and wake(). Calls do not block unless documented.
/// progress() throws the errors.
class Dialer {
 public:
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;
  Dialer(Dialer&&) = delete;
  Dialer& operator=(Dialer&&) = delete;

  /// Starts opening the stream to `rank`, unless the stream exists or is being opened.
  void open(int rank) UNISONO_EXCLUDES(mutex_);

  /// Returns true while this rank has dials in progress.
  [[nodiscard]] bool is_dialing() const { return !dials_.empty(); }

  /// Advances all dials and takes up delivered connections. Returns the ranks that have a new
  /// stream.
  ///
  /// Throws Error(kPeerLost) for a rank that cannot be reached or has left, and the errors of the
  /// handshake. Messages contain the rank's name.
  std::vector<int> progress() UNISONO_EXCLUDES(mutex_);

  /// Takes up delivered connections. Returns the ranks with a new stream.
  std::vector<int> take_delivered() UNISONO_EXCLUDES(mutex_);

  /// Probes whether `rank` has stopped listening; blocks for a tenth of a second at most. Returns
  /// false if a stream to the rank exists or is being opened, or if this process has no free
  /// descriptor for the probe.
  [[nodiscard]] bool is_unreachable(int rank) UNISONO_EXCLUDES(mutex_);

  /// Takes over a connection that `rank` opened, after the hello. Any thread.
  void deliver(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);

  /// Appends the descriptors to poll until progress() has work. The first becomes readable on
  /// deliver() and wake().
  void add_polls(std::vector<pollfd>& polls) const;

  /// The latest time at which progress() must be called again.
  [[nodiscard]] Deadline next_try() const;

  /// Interrupts a poll(2) on the descriptors of add_polls(). Any thread.
  void wake() const noexcept {
    if (wakeup_) {
      wakeup_->wake();
    }
  }

  /// Resets the wake-ups so far.
  void clear_wakeups() const noexcept { wakeup_->clear(); }

  /// Blocks until no dial is in progress, at most until the deadline. Throws the errors of
  /// progress().
  void finish_dials(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Takes up the last delivered connections. Connections delivered afterwards are closed without
  /// the accept byte, so the dialing rank sees that this rank leaves.
  void close_door() UNISONO_EXCLUDES(mutex_);

 protected:
  explicit Dialer(DialerParts parts);
  ~Dialer() = default;

  [[nodiscard]] const transport::RankAddress& member(int rank) const {
    return parts_.members[static_cast<std::size_t>(rank)];
  }

  /// Drops all dials and all delivered connections that were not taken up.
  void drop_all() UNISONO_EXCLUDES(mutex_);

 private:
  virtual void adopt(int rank, std::unique_ptr<transport::Stream> stream) = 0;

  // A connection that this rank is opening.
  struct OwnDial {
    transport::Dial dial;
    // True if the peer's own connection arrived first. The handshake continues until the peer
    // closes this connection: the peer takes a handshake that breaks off for an unauthenticated
    // client.
    bool is_needless = false;
  };

  [[nodiscard]] bool has_preference(int rank) const;
  [[nodiscard]] bool has_delivered(int rank) UNISONO_EXCLUDES(mutex_);
  void accept(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);
  void check(int rank, transport::Dial::Outcome outcome) UNISONO_EXCLUDES(mutex_);

  DialerParts parts_;
  std::unique_ptr<net::Wakeup> wakeup_;  // Null if there are no other nodes.
  std::map<int, OwnDial> dials_;
  Mutex mutex_;
  std::map<int, Fd> delivered_ UNISONO_GUARDED_BY(mutex_);
  bool is_door_closed_ UNISONO_GUARDED_BY(mutex_) = false;
  // Ranks that are being dialed, and ranks with a stream.
  std::set<int> dialed_ UNISONO_GUARDED_BY(mutex_);
  std::set<int> connected_ UNISONO_GUARDED_BY(mutex_);
};

/// The connections of a group's rank to ranks of other nodes, by rank. Peer is a Connection for
/// operations or a PacketStream for messages, made from the stream to that rank.
///
/// A rank has a table for each group and purpose. Threads and errors: Dialer. abort(), leave() and
/// close() end the table; abort() and leave() do not throw.
template <class Peer>
class PeerTable final : public Dialer {
 public:
  /// `name` denotes the rank in errors.
  using MakePeer = std::function<std::unique_ptr<Peer>(
      int rank, const std::string& name, std::unique_ptr<transport::Stream> stream)>;

  PeerTable(DialerParts parts, MakePeer make_peer)
      : Dialer(std::move(parts)), make_peer_(std::move(make_peer)) {}

  /// Returns null until there is a stream to the rank.
  [[nodiscard]] Peer* find(int rank) const {
    const auto found = peers_.find(rank);
    return found == peers_.end() ? nullptr : found->second.get();
  }

  /// Returns all existing peers.
  [[nodiscard]] std::vector<Peer*> peers() const {
    std::vector<Peer*> peers;
    for (const auto& [rank, peer] : peers_) {
      peers.push_back(peer.get());
    }
    return peers;
  }

  /// Sends the error of this rank's group to all connected ranks, including ranks with a connection
  /// that this rank has never used. Only the first call has an effect.
  void abort(const Error& reason) noexcept {
    if (std::exchange(has_aborted_, true)) {
      return;
    }
    try_to([this] { (void)this->progress(); });
    for (const auto& [rank, peer] : peers_) {
      peer->frames().abort(reason);
    }
  }

  [[nodiscard]] bool has_aborted() const { return has_aborted_; }

  /// Sends a leave frame to all connected ranks, unless the table has aborted. Later connections
  /// are refused: the dialing rank would take an end without a leave frame for a crash.
  void leave() noexcept {
    try_to([this] {
      this->close_door();
      if (!has_aborted_) {
        // Completes redundant dials: the peer takes a handshake that breaks off for an
        // unauthenticated client.
        this->finish_dials(Deadline::after(kLinger));
      }
    });
    for (const auto& [rank, peer] : peers_) {
      if (!has_aborted_) {
        peer->frames().say_goodbye();
      }
    }
    const Deadline deadline =
        Deadline::after(has_aborted_ ? kLinger : std::chrono::milliseconds::zero());
    for (const auto& [rank, peer] : peers_) {
      peer->frames().linger(deadline);
    }
  }

  /// Ends all connections. deliver() must not be called any more.
  void close() {
    peers_.clear();
    drop_all();
  }

 private:
  // Time for the peers to read this rank's error or to close redundant connections.
  static constexpr std::chrono::milliseconds kLinger{250};

  template <class Action>
  static void try_to(Action action) noexcept {
    try {
      action();
    } catch (const std::exception&) {
      return;  // For example a rank that cannot be reached, and so cannot be notified.
    }
  }

  void adopt(int rank, std::unique_ptr<transport::Stream> stream) override {
    peers_[rank] = make_peer_(rank, member(rank).name, std::move(stream));
  }

  MakePeer make_peer_;
  std::map<int, std::unique_ptr<Peer>> peers_;
  bool has_aborted_ = false;
};

}  // namespace unisono::tcp
