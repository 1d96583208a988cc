#include "unisono/transport/remote/peer_table.h"

#include <fmt/format.h>

#include <iterator>

#include "unisono/net/socket.h"

namespace unisono::tcp {
namespace {

// Time limit of a probe for a listener. A host without a listener refuses at once.
constexpr std::chrono::milliseconds kGlance{100};

}  // namespace

Dialer::Dialer(DialerParts parts) : parts_(std::move(parts)) {
  if (parts_.has_other_nodes) {
    wakeup_ = std::make_unique<net::Wakeup>();
  }
}

// If both ranks of a pair dial, the higher rank's connection is kept.
bool Dialer::has_preference(int rank) const {
  return member(rank).job_rank < parts_.mine.rank;
}

bool Dialer::has_delivered(int rank) {
  const MutexLock lock(mutex_);
  return delivered_.contains(rank);
}

void Dialer::open(int rank) {
  {
    const MutexLock lock(mutex_);
    // progress() takes up delivered connections.
    if (connected_.contains(rank) || delivered_.contains(rank) || !dialed_.insert(rank).second) {
      return;
    }
  }
  const bool is_late = parts_.caller == DialingRank::kHigherRank && !has_preference(rank);
  dials_.emplace(rank,
                 OwnDial{.dial = transport::Dial(member(rank),
                                                 parts_.secret,
                                                 parts_.mine,
                                                 is_late ? transport::Dial::Start::kLate
                                                         : transport::Dial::Start::kNow)});
}

std::vector<int> Dialer::progress() {
  std::vector<int> opened = take_delivered();
  for (auto entry = dials_.begin(); entry != dials_.end();) {
    auto& [rank, own] = *entry;
    const transport::Dial::Outcome outcome = own.dial.progress();
    const bool is_welcome = outcome == transport::Dial::Outcome::kWelcomed;
    if (is_welcome && !own.is_needless) {
      accept(rank, own.dial.take());
      opened.push_back(rank);
    } else if (!own.is_needless) {
      check(rank, outcome);
    }
    const bool is_over = is_welcome || (own.is_needless && !own.dial.is_trying());
    entry = is_over ? dials_.erase(entry) : std::next(entry);
  }
  return opened;
}

// A refused dial means that the rank has left, unless a connection from that rank was delivered
// meanwhile. A leaving rank first sends all data over connections that this rank has accepted,
// which are delivered by now.
void Dialer::check(int rank, transport::Dial::Outcome outcome) {
  if (outcome == transport::Dial::Outcome::kRefused && !has_delivered(rank)) {
    throw transport::nobody_listens(member(rank));
  }
  // A lower rank draws no conclusion: the higher rank's own connection may be about to arrive.
  const bool has_left = outcome == transport::Dial::Outcome::kTurnedAway &&
                        parts_.caller == DialingRank::kHigherRank && has_preference(rank);
  if (has_left && !has_delivered(rank)) {
    throw Error(ErrorCode::kPeerLost,
                fmt::format("{} at {} has left the group, or is gone: it ended the connection "
                            "before its part of the operation arrived",
                            member(rank).name,
                            member(rank).address.to_string()));
  }
}

void Dialer::accept(int rank, Fd socket) {
  net::set_no_delay(socket.get());
  net::set_idle_timeout(socket.get(), transport::kLivenessTimeout);
  adopt(rank, parts_.make_stream(std::move(socket)));
  const MutexLock lock(mutex_);
  dialed_.erase(rank);
  connected_.insert(rank);
}

std::vector<int> Dialer::take_delivered() {
  std::map<int, Fd> delivered;
  {
    const MutexLock lock(mutex_);
    delivered.swap(delivered_);
    for (const auto& [rank, socket] : delivered) {
      connected_.insert(rank);
    }
  }
  std::vector<int> taken;
  for (auto& [rank, socket] : delivered) {
    accept(rank, std::move(socket));
    taken.push_back(rank);
    const auto own = dials_.find(rank);
    if (own != dials_.end() && own->second.dial.is_trying()) {
      own->second.is_needless = true;
    } else if (own != dials_.end()) {
      dials_.erase(own);
    }
  }
  return taken;
}

bool Dialer::is_unreachable(int rank) {
  {
    const MutexLock lock(mutex_);
    if (connected_.contains(rank) || delivered_.contains(rank) || dialed_.contains(rank)) {
      return false;
    }
  }
  try {
    return net::is_refused(member(rank).address, Deadline::after(kGlance));
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kSystem) {
      throw;
    }
    return false;  // No file descriptor is free for the probe.
  }
}

void Dialer::deliver(int rank, Fd socket) {
  {
    const MutexLock lock(mutex_);
    const bool is_mine_better = has_preference(rank) && dialed_.contains(rank);
    if (is_door_closed_ || is_mine_better || connected_.contains(rank) ||
        delivered_.contains(rank)) {
      return;  // Closes the socket.
    }
    if (!transport::send_accept(socket.get())) {
      return;
    }
    delivered_.emplace(rank, std::move(socket));
  }
  wake();
}

void Dialer::add_polls(std::vector<pollfd>& polls) const {
  polls.push_back({.fd = wakeup_->fd(), .events = POLLIN, .revents = 0});
  for (const auto& [rank, own] : dials_) {
    if (own.dial.is_trying()) {
      polls.push_back(own.dial.poll());
    }
  }
}

Deadline Dialer::next_try() const {
  Deadline next = Deadline::never();
  for (const auto& [rank, own] : dials_) {
    next = earlier(next, own.dial.next_try());
  }
  return next;
}

void Dialer::finish_dials(Deadline deadline) {
  for ((void)progress(); is_dialing() && !deadline.has_passed(); (void)progress()) {
    clear_wakeups();
    std::vector<pollfd> polls;
    add_polls(polls);
    (void)::poll(polls.data(), polls.size(), earlier(deadline, next_try()).poll_timeout_ms());
  }
}

void Dialer::close_door() {
  {
    const MutexLock lock(mutex_);
    is_door_closed_ = true;
  }
  (void)take_delivered();
}

void Dialer::drop_all() {
  dials_.clear();
  const MutexLock lock(mutex_);
  delivered_.clear();
}

}  // namespace unisono::tcp
