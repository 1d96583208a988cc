#include "unisono/health/group_registry.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/health/monitored_group.h"

namespace unisono::health {
namespace {

// Of one group that is yet to be made; a peer has one or two things to say of it.
constexpr std::size_t kMaxEvents = 4096;

// Who waits for a rank that has left asks for it within seconds.
constexpr std::size_t kMaxEnded = 1024;

}  // namespace

void GroupRegistry::expect(std::uint32_t number) {
  const MutexLock lock(mutex_);
  expected_.try_emplace(number);
}

// What comes meanwhile is kept too, so that a group hears everything in order.
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

void GroupRegistry::end(std::uint32_t number, MetRanks met, std::optional<Error> failure) {
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

// One after the other, as groups may end meanwhile, and a list of them takes memory.
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

}  // namespace unisono::health
