#pragma once

#include <poll.h>

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"
#include "unisono/net/hello.h"
#include "unisono/net/wakeup.h"
#include "unisono/transport/stream.h"
#include "unisono/transport/tcp/liveness.h"
#include "unisono/transport/tcp/mesh.h"
#include "unisono/transport/tcp/packet_stream.h"

namespace unisono::tcp {

/// The connections of one group's rank for messages to ranks of other nodes: one per pair, opened
/// by whichever of the two needs it first. Never blocks. All but deliver() and wake() belongs to
/// one thread at a time.
///
/// Who accepts says so with a byte after the hello. When both ranks of a pair open one at the same
/// time, the higher rank turns the lower one's away, and the lower rank waits for the higher one's.
class MessageMesh {
 public:
  /// `members[r]` is rank r. `secret` and `mine` are for the hello, and `make_stream`
  /// for what comes after it. Unless the group has ranks of
  /// other nodes there is nothing to wait for, and no file descriptor is held.
  MessageMesh(std::vector<transport::RankAddress> members,
              std::string secret,
              net::HelloInfo mine,
              transport::MakeStream make_stream,
              bool has_other_nodes);

  /// The connection to `rank`; null until there is one.
  [[nodiscard]] PacketStream* find(int rank) const;

  /// Whether nobody listens for `rank` any more; false where there is a connection, or may be,
  /// and where this process has no descriptor for a look. Waits for a tenth of a second at most.
  [[nodiscard]] bool is_unreachable(int rank) UNISONO_EXCLUDES(mutex_);

  /// Opens the connection to `rank`, unless there is one or it is on its way.
  void open(int rank) UNISONO_EXCLUDES(mutex_);

  /// Goes on with what is being opened, and takes up what was delivered. Returns the ranks that
  /// have a connection now and had none before.
  ///
  /// Throws Error(kPeerLost) for a rank that can't be reached, and the hello's errors, with the
  /// rank's name.
  std::vector<int> progress() UNISONO_EXCLUDES(mutex_);

  /// Takes a connection that `rank` opened, after its hello. Any thread.
  void deliver(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);

  /// Says that a connection is kept. False when the other side is gone.
  static bool welcome(int fd) noexcept;

  /// Adds what poll(2) is to wait for.
  void add_polls(std::vector<pollfd>& polls) const;

  /// When progress() is to be called at the latest.
  [[nodiscard]] Deadline next_try() const;

  /// Makes a poll(2) that waits look again. Any thread.
  void wake() const noexcept {
    if (wakeup_) {
      wakeup_->wake();
    }
  }

  /// Forgets the wake-ups so far.
  void clear_wakeups() const noexcept { wakeup_->clear(); }

  /// The connections that exist.
  [[nodiscard]] std::vector<PacketStream*> streams() const;

  /// Waits until nothing is being opened any more, at most until the deadline.
  void finish_dials(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Takes up the last that was delivered: from now on connections are ended without a welcome, so
  /// that whoever opened them sees that this rank leaves.
  void close_door() UNISONO_EXCLUDES(mutex_);

  /// Ends all connections. Nobody delivers any more.
  void close() UNISONO_EXCLUDES(mutex_);

 private:
  // A connection that this rank is opening.
  struct Dial {
    Fd socket;  // Not open between two tries.
    bool is_connected = false;
    std::unique_ptr<net::Hello> hello;
    std::vector<std::byte> output;
    Deadline next_try = Deadline::never();
    std::chrono::milliseconds pause{};
    int n_refusals = 0;
    Deadline patience = Deadline::after(kDescriptorPatience);
    // The other side's connection came first. The hello goes on until this one is turned away: one
    // that breaks off looks like a stranger's.
    bool is_needless = false;
  };

  void begin(int rank, Dial& dial);
  // Takes a dial as far as it comes. True when the other side has taken the connection.
  bool advance(int rank, Dial& dial);
  void finish_connect(int rank, Dial& dial);
  [[nodiscard]] bool exchange_hello(int rank, Dial& dial);
  static void try_again_later(Dial& dial);
  void adopt(int rank, Fd socket);
  void add_dial_polls(std::vector<pollfd>& polls) const;
  void take_delivered(std::vector<int>& opened) UNISONO_EXCLUDES(mutex_);

  [[nodiscard]] const transport::RankAddress& member(int rank) const {
    return members_[static_cast<std::size_t>(rank)];
  }

  std::vector<transport::RankAddress> members_;
  std::string secret_;
  net::HelloInfo mine_;
  transport::MakeStream make_stream_;
  std::unique_ptr<net::Wakeup> wakeup_;  // Where there are other nodes.
  std::map<int, std::unique_ptr<PacketStream>> streams_;
  std::map<int, Dial> dials_;
  Mutex mutex_;
  std::map<int, Fd> delivered_ UNISONO_GUARDED_BY(mutex_);
  bool is_door_closed_ UNISONO_GUARDED_BY(mutex_) = false;
  // The ranks to which this one is opening a connection, or has one.
  std::set<int> dialed_ UNISONO_GUARDED_BY(mutex_);
  std::set<int> connected_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::tcp
