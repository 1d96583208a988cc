#include "unisono/transport/remote/exchange.h"

#include <poll.h>

#include <algorithm>

#include "unisono/base/deadline.h"
#include "unisono/transport/stream.h"

namespace unisono::tcp {
namespace {

using transport::Look;

bool is_busy(const Connection* connection) {
  return connection->is_sending() || connection->is_receiving();
}

}  // namespace

void Exchange::run(std::span<const Outgoing> sends,
                   std::span<const Incoming> receives,
                   const LateRanks* late_ranks) {
  sends_ = sends;
  receives_ = receives;
  late_ranks_ = late_ranks;
  for (const Outgoing& outgoing : sends) {
    begin_with(outgoing.rank);
  }
  for (const Incoming& incoming : receives) {
    begin_with(incoming.rank);
  }
  move_all();
  for (const Outgoing& outgoing : sends) {
    traffic_.count_sent(outgoing.rank, outgoing.data.size());
  }
  for (const Incoming& incoming : receives) {
    traffic_.count_received(incoming.rank, incoming.data.size());
  }
}

// Posts all transfers to and from the rank, unless an earlier call did. Opens a missing connection.
void Exchange::begin_with(int rank) {
  Connection* const known = table_.find(rank);
  if (known != nullptr && !is_busy(known)) {
    post(*known);
  } else if (known == nullptr && std::ranges::find(awaited_, rank) == awaited_.end()) {
    table_.open(rank);
    awaited_.push_back(rank);
  }
}

void Exchange::post(Connection& connection) {
  if (std::ranges::find(connections_, &connection) == connections_.end()) {
    connection.begin(tag_);
    connections_.push_back(&connection);
    // A rank that only sends, call after call, reads no other data that would show the peer's
    // failure.
    if (connection.was_one_way() && transport::has_root(tag_.descriptor.kind)) [[unlikely]] {
      connection.look_for_abort();
    }
  }
  for (const Outgoing& outgoing : sends_) {
    if (outgoing.rank == connection.rank()) {
      connection.post_send(outgoing.data, outgoing.n_bytes_back);
    }
  }
  for (const Incoming& incoming : receives_) {
    if (incoming.rank == connection.rank()) {
      connection.post_receive(incoming.data);
    }
  }
}

bool Exchange::post_to_who_came() {
  if (table_.progress().empty()) {
    return false;
  }
  const std::size_t n_erased = std::erase_if(awaited_, [this](int rank) {
    Connection* const came = table_.find(rank);
    if (came != nullptr) {
      post(*came);
    }
    return came != nullptr;
  });
  return n_erased > 0;
}

void Exchange::move_all() {
  const auto look = [this] {
    // Redundant dials are driven to completion too.
    bool has_moved = (!awaited_.empty() || table_.is_dialing()) && post_to_who_came();
    bool is_done = awaited_.empty();
    for (Connection* const connection : connections_) {
      if (is_busy(connection)) {
        has_moved = connection->progress() || has_moved;
        is_done = is_done && !is_busy(connection);
      }
    }
    if (has_moved) {
      wait_monitor_.note_progress();
    }
    return is_done ? Look::kDone : has_moved ? Look::kProgress : Look::kNothing;
  };
  const auto sleep = [this] {
    wait();
    return Look::kProgress;
  };
  transport::wait(transport::kBriefWait, nullptr, look, sleep);
}

// The connections of ranks that have done their part are checked for aborts too: after the failure
// of such a rank, the ranks that this rank still waits for cannot continue either.
void Exchange::wait() {
  wait_monitor_.check([this] { return late_ranks_ == nullptr ? unmet_ranks() : (*late_ranks_)(); });
  std::vector<pollfd> polls;
  table_.add_polls(polls);
  for (Connection* const connection : connections_) {
    if (is_busy(connection)) {
      connection->check_answers();
      connection->frames().stream().add_polls(
          polls, connection->can_receive(), connection->is_sending());
    }
  }
  const Deadline next_look = earlier(earlier(wait_monitor_.next_check(), table_.next_try()),
                                     Deadline::after(transport::kLivenessLook));
  std::vector<Connection*> idle;
  const std::size_t n_busy = polls.size();
  for (Connection* const connection : table_.peers()) {
    if (connection->may_tell_abort()) {
      idle.push_back(connection);
      polls.push_back(
          {.fd = connection->frames().stream().socket(), .events = POLLRDHUP, .revents = 0});
    }
  }
  (void)::poll(polls.data(), polls.size(), next_look.poll_timeout_ms());
  // The first entry is the table's wake-up descriptor.
  if (polls.front().revents != 0) {
    table_.clear_wakeups();
  }
  for (std::size_t index = 0; index < idle.size(); ++index) {
    if (polls[n_busy + index].revents != 0) {
      idle[index]->look_for_abort();
    }
  }
}

std::vector<int> Exchange::unmet_ranks() const {
  std::vector<int> ranks;
  for (const Connection* const connection : connections_) {
    if (is_busy(connection)) {
      ranks.push_back(connection->rank());
    }
  }
  ranks.insert(ranks.end(), awaited_.begin(), awaited_.end());
  return ranks;
}

}  // namespace unisono::tcp
