#include "unisono/comm/work_waits.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/rank_wait.h"

namespace unisono::comm {

void WorkWaits::begin(std::uint64_t thread, const WaitId& work) {
  const MutexLock lock(mutex_);
  const auto [wait, is_new] = waits_.try_emplace(thread);
  if (is_new) {
    wait->second.since = Deadline::Clock::now();
  }
  wait->second.works.insert(work);
}

void WorkWaits::end(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  waits_.erase(thread);
}

std::optional<WaitId> WorkWaits::find(std::uint64_t thread) const {
  const MutexLock lock(mutex_);
  const auto found = waits_.find(thread);
  return found == waits_.end() || found->second.works.size() > 1
             ? std::nullopt
             : std::optional(*found->second.works.begin());
}

std::optional<Deadline::Clock::time_point> WorkWaits::waited_since(const WaitId& work) const {
  const MutexLock lock(mutex_);
  std::optional<Deadline::Clock::time_point> since;
  for (const auto& [thread, wait] : waits_) {
    if (wait.works.contains(work)) {
      since = std::min(since.value_or(wait.since), wait.since);
    }
  }
  return since;
}

void WorkWaits::add_callback(const WaitId& work) {
  const MutexLock lock(mutex_);
  with_callback_.insert(work);
}

void WorkWaits::remove_callback(const WaitId& work) {
  const MutexLock lock(mutex_);
  with_callback_.erase(work);
}

bool WorkWaits::has_callback_besides(const WaitId& wait) const {
  const MutexLock lock(mutex_);
  return std::any_of(with_callback_.begin(), with_callback_.end(), [&](const WaitId& work) {
    const bool is_behind = !wait.is_message && !work.is_message && work.group == wait.group &&
                           work.sequence >= wait.sequence;
    return work != wait && !is_behind;
  });
}

}  // namespace unisono::comm
