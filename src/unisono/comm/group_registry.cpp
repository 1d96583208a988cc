#include "unisono/comm/group_registry.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "unisono/base/mutex.h"
#include "unisono/comm/links.h"

namespace unisono::comm {
namespace {

// A rank that has not come to a number yet may hear from who has.
constexpr std::uint32_t kFarthestNumber = 1 << 16;

// Of one group that is yet to be made; a peer has one or two things to say of it.
constexpr std::size_t kMaxEvents = 4096;

// Who waits for a rank that has left asks for it within seconds.
constexpr std::size_t kMaxEnded = 1024;

}  // namespace

std::uint32_t GroupRegistry::next_number() const {
  const MutexLock lock(mutex_);
  return next_number_;
}

void GroupRegistry::expect(std::uint32_t first, std::uint32_t count) {
  const MutexLock lock(mutex_);
  for (std::uint32_t number = first; number < first + count; ++number) {
    expected_.try_emplace(number);
  }
  next_number_ = std::max(next_number_, first + count);
}

void GroupRegistry::expect(std::uint32_t number) {
  const MutexLock lock(mutex_);
  expected_.try_emplace(number);
}

// What comes meanwhile is kept too, so that a group hears everything in order.
void GroupRegistry::add(std::uint32_t number, const std::shared_ptr<Links>& links) {
  while (true) {
    std::vector<Event> events;
    {
      const MutexLock lock(mutex_);
      if (const auto expected = expected_.find(number); expected != expected_.end()) {
        events.swap(expected->second);
      }
      if (events.empty()) {
        groups_[number] = links;
        expected_.erase(number);
        return;
      }
    }
    for (const Event& event : events) {
      event(*links);
    }
  }
}

void GroupRegistry::remove(std::uint32_t number) {
  std::shared_ptr<Links> ended;
  const MutexLock lock(mutex_);
  const auto group = groups_.find(number);
  if (group != groups_.end()) {
    ended = std::move(group->second);
    groups_.erase(group);
  }
  expected_.erase(number);
}

void GroupRegistry::end(std::uint32_t number, std::set<int> met) {
  remove(number);
  const MutexLock lock(mutex_);
  ended_.insert_or_assign(number, std::move(met));
  if (ended_.size() > kMaxEnded) {
    ended_.erase(ended_.begin());
  }
}

bool GroupRegistry::has_left_unmet(std::uint32_t number, int job_rank) const {
  const MutexLock lock(mutex_);
  const auto ended = ended_.find(number);
  return ended != ended_.end() && !ended->second.contains(job_rank);
}

void GroupRegistry::notify(std::uint32_t number, Event event) {
  std::shared_ptr<Links> links;
  {
    const MutexLock lock(mutex_);
    if (const auto group = groups_.find(number); group != groups_.end()) {
      links = group->second;
    } else {
      const bool is_to_come = expected_.contains(number) ||
                              (number >= next_number_ && number - next_number_ < kFarthestNumber);
      if (is_to_come && expected_[number].size() < kMaxEvents) {
        expected_[number].push_back(std::move(event));
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

}  // namespace unisono::comm
