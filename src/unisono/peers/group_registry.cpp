#include "unisono/peers/group_registry.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <span>
#include <utility>

#include "unisono/net/address.h"
#include "unisono/peers/control_plane.h"
#include "unisono/transport/frame.h"

namespace unisono::peers {
namespace {

// Limit of the wait until a report is written.
constexpr std::chrono::milliseconds kTellPatience{500};

int job_rank(const GroupContacts& contacts, int rank) {
  return contacts.roster.members[static_cast<std::size_t>(rank)].job_rank;
}

// Returns the other members on this rank's node, as ranks of the job.
std::vector<int> neighbours(const GroupContacts& contacts) {
  const collective::Topology topology(contacts.roster.rank, contacts.roster.nodes());
  std::vector<int> ranks;
  for (const int rank : topology.local_ranks()) {
    if (rank != topology.rank()) {
      ranks.push_back(job_rank(contacts, rank));
    }
  }
  return ranks;
}

// Returns a rank of each other node. The ranks of this node choose different ranks, as far as there
// are enough.
std::vector<int> deputies(const GroupContacts& contacts) {
  const collective::Topology topology(contacts.roster.rank, contacts.roster.nodes());
  const auto local_rank = static_cast<std::size_t>(topology.local_rank());
  std::vector<int> ranks;
  for (int node = 0; node < topology.n_nodes(); ++node) {
    if (node != topology.node()) {
      const std::span<const int> all = topology.ranks_of(node);
      ranks.push_back(job_rank(contacts, all[local_rank % all.size()]));
    }
  }
  return ranks;
}

// A report may fail for lack of memory. The end of the connections then shows the failure.
template <class Step>
void survive(Step step) noexcept {
  try {
    step();
  } catch (const std::exception&) {
    return;
  }
}

void tell(const GroupContacts& contacts, std::vector<int> job_ranks, const Error& reason) {
  contacts.control.tell(
      std::move(job_ranks), transport::encode_abort(contacts.group, reason), kTellPatience);
}

}  // namespace

void notify_rank(const GroupContacts& contacts, int rank, const Error& reason) noexcept {
  survive([&] { tell(contacts, {job_rank(contacts, rank)}, reason); });
}

void notify_node(const GroupContacts& contacts, const Error& reason) noexcept {
  survive([&] { tell(contacts, neighbours(contacts), reason); });
}

void notify_other_nodes(const GroupContacts& contacts, const Error& reason) noexcept {
  survive([&] { tell(contacts, deputies(contacts), reason); });
}

namespace {

// Limit for a group that is yet to be made. A peer reports an event or two about such a group.
constexpr std::size_t kMaxEvents = 4096;

// A rank that waits for a rank that has left asks within seconds.
constexpr std::size_t kMaxEnded = 1024;

}  // namespace

void GroupRegistry::expect(std::uint32_t number) {
  const MutexLock lock(mutex_);
  expected_.try_emplace(number);
}

// Events that arrive meanwhile are kept as well, so that the group receives all events in order.
void GroupRegistry::add(std::uint32_t number, const std::shared_ptr<MonitoredGroup>& group) {
  while (true) {
    std::vector<Event> events;
    std::optional<Error> end;
    {
      const MutexLock lock(mutex_);
      if (const auto expected = expected_.find(number); expected != expected_.end()) {
        events.swap(expected->second);
      }
      if (events.empty()) {
        groups_[number] = group;
        expected_.erase(number);
        end = end_;
      }
    }
    if (end) {
      group->give_up(*end);
    }
    if (events.empty()) {
      return;
    }
    for (const Event& event : events) {
      event(*group);
    }
  }
}

void GroupRegistry::forget(std::uint32_t number) {
  decltype(expected_)::node_type forgotten;  // Events may hold sockets, which close without a lock.
  const MutexLock lock(mutex_);
  forgotten = expected_.extract(number);
}

void GroupRegistry::end(std::uint32_t number,
                        transport::ConnectedPeers met,
                        std::optional<Error> failure) {
  decltype(groups_)::node_type left;
  const MutexLock lock(mutex_);
  left = groups_.extract(number);
  ended_.push_back({.number = number, .met = std::move(met), .failure = std::move(failure)});
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
  }
}

const GroupRegistry::Ended* GroupRegistry::find_ended(std::uint32_t number) const {
  const auto ended = std::find_if(
      ended_.begin(), ended_.end(), [&](const Ended& each) { return each.number == number; });
  return ended == ended_.end() ? nullptr : &*ended;
}

std::optional<Error> GroupRegistry::find_failure(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const Ended* const ended = find_ended(number);
  return ended == nullptr ? std::nullopt : ended->failure;
}

transport::Departure GroupRegistry::find_departure(std::uint32_t number, int job_rank) const {
  const MutexLock lock(mutex_);
  const Ended* const ended = find_ended(number);
  if (ended == nullptr) {
    return {.from_operations = false, .from_messages = false};
  }
  return {.from_operations = !ended->met.by_operations.contains(job_rank),
          .from_messages = !ended->met.by_messages.contains(job_rank)};
}

std::shared_ptr<MonitoredGroup> GroupRegistry::find(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const auto found = groups_.find(number);
  return found == groups_.end() ? nullptr : found->second;
}

void GroupRegistry::notify(std::uint32_t number, Event event) {
  std::shared_ptr<MonitoredGroup> group;
  {
    const MutexLock lock(mutex_);
    if (const auto found = groups_.find(number); found != groups_.end()) {
      group = found->second;
    } else {
      const auto expected = expected_.find(number);
      if (expected != expected_.end() && expected->second.size() < kMaxEvents) {
        expected->second.push_back(std::move(event));
      }
      return;
    }
  }
  event(*group);
}

// Visits the groups singly, because groups may end meanwhile and a list would need memory.
template <class Visit>
void GroupRegistry::for_each(Visit visit) {
  for (std::optional<std::uint32_t> last;;) {
    std::shared_ptr<MonitoredGroup> group;
    {
      const MutexLock lock(mutex_);
      const auto next = last ? groups_.upper_bound(*last) : groups_.begin();
      if (next == groups_.end()) {
        return;
      }
      last = next->first;
      group = next->second;
    }
    visit(*group);
  }
}

void GroupRegistry::notify_present(const Event& event) {
  for_each(std::cref(event));
}

void GroupRegistry::notify_all(const Event& event) {
  {
    const MutexLock lock(mutex_);
    for (auto& [number, events] : expected_) {
      events.push_back(event);
    }
  }
  for_each(std::cref(event));
}

void GroupRegistry::give_up(const Error& error) noexcept {
  {
    const MutexLock lock(mutex_);
    if (!end_) {
      end_ = error;
    }
  }
  for_each([&](MonitoredGroup& group) { group.give_up(error); });
}

}  // namespace unisono::peers
