#include "unisono/transport/failure.h"

#include <atomic>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"

namespace unisono::transport {

bool Failure::set(const Error& error) {
  {
    const MutexLock lock(mutex_);
    if (error_) {
      return false;
    }
    error_ = error;
    is_set_.store(true, std::memory_order_release);
    changed_.notify_all();
  }
  wake_();
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

}  // namespace unisono::transport
