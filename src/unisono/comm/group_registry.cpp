#include "unisono/comm/group_registry.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/links.h"

namespace unisono::comm {
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
void GroupRegistry::add(std::uint32_t number, const std::shared_ptr<Links>& links) {
  while (true) {
    std::vector<Event> events;
    std::optional<Error> end;
    {
      const MutexLock lock(mutex_);
      if (const auto expected = expected_.find(number); expected != expected_.end()) {
        events.swap(expected->second);
      }
      if (events.empty()) {
        groups_[number] = links;
        expected_.erase(number);
        end = end_;
      }
    }
    if (end) {
      links->give_up(*end);
    }
    if (events.empty()) {
      return;
    }
    for (const Event& event : events) {
      event(*links);
    }
  }
}

void GroupRegistry::forget(std::uint32_t number) {
  decltype(expected_)::node_type forgotten;  // Events may hold sockets, which close without a lock.
  const MutexLock lock(mutex_);
  forgotten = expected_.extract(number);
}

void GroupRegistry::end(std::uint32_t number, MetRanks met) {
  decltype(groups_)::node_type left;
  const MutexLock lock(mutex_);
  left = groups_.extract(number);
  ended_.push_back({.number = number, .met = std::move(met)});
  if (ended_.size() > kMaxEnded) {
    ended_.pop_front();
  }
}

transport::Departure GroupRegistry::find_departure(std::uint32_t number, int job_rank) const {
  const MutexLock lock(mutex_);
  const auto ended = std::find_if(
      ended_.begin(), ended_.end(), [&](const Ended& each) { return each.number == number; });
  if (ended == ended_.end()) {
    return {.from_operations = false, .from_messages = false};
  }
  return {.from_operations = !ended->met.by_operations.contains(job_rank),
          .from_messages = !ended->met.by_messages.contains(job_rank)};
}

std::shared_ptr<Links> GroupRegistry::find(std::uint32_t number) const {
  const MutexLock lock(mutex_);
  const auto group = groups_.find(number);
  return group == groups_.end() ? nullptr : group->second;
}

void GroupRegistry::notify(std::uint32_t number, Event event) {
  std::shared_ptr<Links> links;
  {
    const MutexLock lock(mutex_);
    if (const auto group = groups_.find(number); group != groups_.end()) {
      links = group->second;
    } else {
      const auto expected = expected_.find(number);
      if (expected != expected_.end() && expected->second.size() < kMaxEvents) {
        expected->second.push_back(std::move(event));
      }
      return;
    }
  }
  event(*links);
}

std::vector<std::shared_ptr<Links>> GroupRegistry::present() const {
  std::vector<std::shared_ptr<Links>> all;
  for (const auto& [number, links] : groups_) {
    all.push_back(links);
  }
  return all;
}

void GroupRegistry::notify_present(const Event& event) {
  std::vector<std::shared_ptr<Links>> all;
  {
    const MutexLock lock(mutex_);
    all = present();
  }
  for (const std::shared_ptr<Links>& links : all) {
    event(*links);
  }
}

void GroupRegistry::notify_all(const Event& event) {
  std::vector<std::shared_ptr<Links>> all;
  {
    const MutexLock lock(mutex_);
    all = present();
    for (auto& [number, events] : expected_) {
      events.push_back(event);
    }
  }
  for (const std::shared_ptr<Links>& links : all) {
    event(*links);
  }
}

void GroupRegistry::give_up(const Error& error) noexcept {
  {
    const MutexLock lock(mutex_);
    if (!end_) {
      end_ = error;
    }
  }
  // One after the other, as groups may end meanwhile, and a list of them takes memory.
  for (std::optional<std::uint32_t> last;;) {
    std::shared_ptr<Links> links;
    {
      const MutexLock lock(mutex_);
      const auto group = last ? groups_.upper_bound(*last) : groups_.begin();
      if (group == groups_.end()) {
        return;
      }
      last = group->first;
      links = group->second;
    }
    links->give_up(error);
  }
}

}  // namespace unisono::comm
