#include "unisono/transport/failure.h"

#include <atomic>
#include <functional>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::transport {

bool Failure::set(const Error& error) {
  std::vector<std::function<void()>> wakes;
  {
    const MutexLock lock(mutex_);
    if (error_) {
      return false;
    }
    error_ = error;
    wakes = std::exchange(wakes_, {});
    is_set_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  for (const std::function<void()>& wake : wakes) {
    wake();
  }
  return true;
}

Error Failure::error() const {
  const MutexLock lock(mutex_);
  UNISONO_CHECK(error_.has_value(), "a failure is asked for that did not happen");
  return *error_;
}

bool Failure::wait_until_set(Deadline deadline) const {
  const MutexLock lock(mutex_);
  while (!error_ && !deadline.has_passed()) {
    (void)changed_.wait_until(mutex_, deadline.time());
  }
  return error_.has_value();
}

void Failure::on_set(std::function<void()> wake) {
  {
    const MutexLock lock(mutex_);
    if (!error_) {
      wakes_.push_back(std::move(wake));
      return;
    }
  }
  wake();
}

}  // namespace unisono::transport
