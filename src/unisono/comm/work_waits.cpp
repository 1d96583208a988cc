#include "unisono/comm/work_waits.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "unisono/base/mutex.h"
#include "unisono/comm/rank_wait.h"

namespace unisono::comm {

void WorkWaits::begin(std::uint64_t thread, const WaitId& work) {
  const MutexLock lock(mutex_);
  waits_.insert_or_assign(thread, work);
}

void WorkWaits::end(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  waits_.erase(thread);
}

std::optional<WaitId> WorkWaits::find(std::uint64_t thread) const {
  const MutexLock lock(mutex_);
  const auto found = waits_.find(thread);
  return found == waits_.end() ? std::nullopt : std::optional(found->second);
}

bool WorkWaits::is_waited_for(const WaitId& work) const {
  const MutexLock lock(mutex_);
  return std::any_of(
      waits_.begin(), waits_.end(), [&](const auto& entry) { return entry.second == work; });
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
