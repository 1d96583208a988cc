#include "unisono/comm/work_state.h"

#include <atomic>
#include <exception>
#include <functional>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/mutex.h"

namespace unisono::comm {

void WorkState::complete(std::exception_ptr error) {
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const MutexLock lock(mutex_);
    // Moved: once others can see it, this thread has no share in it.
    error_ = std::move(error);
    callbacks = std::exchange(callbacks_, {});
    is_completed_.store(true, std::memory_order_release);
  }
  completed_.notify_all();
  for (const auto& callback : callbacks) {
    callback(this->error());
  }
}

bool WorkState::wait_until(Deadline deadline) {
  const MutexLock lock(mutex_);
  while (!is_completed()) {
    if (deadline.is_never()) {
      completed_.wait(mutex_);
    } else if (!completed_.wait_until(mutex_, deadline.time())) {
      return is_completed();
    }
  }
  return true;
}

std::exception_ptr WorkState::error() {
  const MutexLock lock(mutex_);
  return error_;
}

void WorkState::on_completion(std::function<void(std::exception_ptr)> callback) {
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    if (!is_completed()) {
      callbacks_.push_back(std::move(callback));
      return;
    }
    error = error_;
  }
  callback(error);
}

void WorkState::set_check(std::function<void()> check) {
  const MutexLock lock(mutex_);
  check_ = std::move(check);
}

std::function<void()> WorkState::take_check() {
  const MutexLock lock(mutex_);
  return std::exchange(check_, nullptr);
}

}  // namespace unisono::comm
