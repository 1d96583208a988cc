#pragma once

#include <poll.h>

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
#include "unisono/transport/dial.h"
#include "unisono/transport/rank_address.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {

/// Which of two ranks dials the other.
enum class Caller {
  kEither,     ///< Whichever needs the connection first.
  kHigherRank  ///< The lower one dials late, in case the other does not.
};

/// What connections of one group's rank are opened with.
struct DialerParts {
  std::vector<transport::RankAddress> members;  ///< members[r] is rank r.
  std::string secret;                           ///< For the hello, as is the next.
  net::HelloInfo mine;
  Caller caller;
  transport::MakeStream make_stream;  ///< For what comes after the hello.
  bool has_other_nodes;  ///< Else there is nothing to wait for, and no descriptor held.
};

/// Opens the streams of one group's rank to ranks of other nodes, for one purpose: one per pair,
/// opened by either. Never blocks, save where it says so. All but deliver() and wake() belongs to
/// one thread at a time. Does not move: its dials refer to it.
///
/// The accepting side sends one byte after the hello. When both ranks of a pair dial at the same
/// time, the higher rank turns the lower one's connection away, and the lower rank waits for the
/// higher one's.
class Dialer {
 public:
  Dialer(const Dialer&) = delete;
  Dialer& operator=(const Dialer&) = delete;
  Dialer(Dialer&&) = delete;
  Dialer& operator=(Dialer&&) = delete;

  /// Opens the stream to `rank`, unless there is one or it is on its way.
  void open(int rank) UNISONO_EXCLUDES(mutex_);

  /// Whether this rank has dials under way.
  [[nodiscard]] bool is_dialing() const { return !dials_.empty(); }

  /// Goes on with what is being opened, and takes up what was delivered. Returns the ranks that
  /// have a stream now and had none before.
  ///
  /// Throws Error(kPeerLost) for a rank that can't be reached, or has left, and the hello's errors,
  /// with the rank's name.
  std::vector<int> progress() UNISONO_EXCLUDES(mutex_);

  /// Takes up what was delivered. Returns those ranks.
  std::vector<int> take_delivered() UNISONO_EXCLUDES(mutex_);

  /// Whether nobody listens for `rank` any more; false where there is a stream, or may be, and
  /// where this process has no descriptor for a look. Waits for a tenth of a second at most.
  [[nodiscard]] bool is_unreachable(int rank) UNISONO_EXCLUDES(mutex_);

  /// Takes a connection that `rank` opened, after its hello. Any thread.
  void deliver(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);

  /// Adds what poll(2) is to wait for, until progress() has something to do: first what becomes
  /// readable on deliver() and wake().
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

  /// Waits until nothing is being dialed any more, at most until the deadline. Throws what
  /// progress() throws.
  void finish_dials(Deadline deadline) UNISONO_EXCLUDES(mutex_);

  /// Takes up the last that was delivered: from now on connections are ended without a welcome, so
  /// that whoever opened them sees that this rank leaves.
  void close_door() UNISONO_EXCLUDES(mutex_);

 protected:
  explicit Dialer(DialerParts parts);
  ~Dialer() = default;

  [[nodiscard]] const transport::RankAddress& member(int rank) const {
    return parts_.members[static_cast<std::size_t>(rank)];
  }

  /// Drops what is being opened.
  void drop_all() UNISONO_EXCLUDES(mutex_);

 private:
  virtual void adopt(int rank, std::unique_ptr<transport::Stream> stream) = 0;

  // A connection that this rank opens.
  struct OwnDial {
    transport::Dial dial;
    // The other side's connection came first. The hello goes on until this one is turned away: one
    // that breaks off looks like a stranger's.
    bool is_needless = false;
  };

  [[nodiscard]] bool has_preference(int rank) const;
  [[nodiscard]] bool has_delivered(int rank) UNISONO_EXCLUDES(mutex_);
  void accept(int rank, Fd socket) UNISONO_EXCLUDES(mutex_);
  void check(int rank, transport::Dial::Outcome outcome) UNISONO_EXCLUDES(mutex_);

  DialerParts parts_;
  std::unique_ptr<net::Wakeup> wakeup_;  // Where there are other nodes.
  std::map<int, OwnDial> dials_;
  Mutex mutex_;
  std::map<int, Fd> delivered_ UNISONO_GUARDED_BY(mutex_);
  bool is_door_closed_ UNISONO_GUARDED_BY(mutex_) = false;
  // The ranks that this one dials, or has a stream with.
  std::set<int> dialed_ UNISONO_GUARDED_BY(mutex_);
  std::set<int> connected_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::tcp
