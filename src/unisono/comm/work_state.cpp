#include "unisono/comm/work_state.h"

#include "unisono/base/thread.h"

namespace unisono::comm {

void WorkState::complete(std::exception_ptr error) {
  std::vector<std::function<void(std::exception_ptr)>> callbacks;
  {
    const MutexLock lock(mutex_);
    // Moved, because this thread must not share the error after other threads can read it.
    error_ = std::move(error);
    callbacks = std::exchange(callbacks_, {});
    is_completed_.store(true, std::memory_order_release);
  }
  completed_.notify_all();
  if (callbacks.empty()) {
    return;
  }
  const std::exception_ptr result = settle();
  for (const auto& callback : callbacks) {
    callback(result);
  }
  waits_->remove_callback(id_);
}

void WorkState::complete(int source, std::exception_ptr error) {
  source_.store(source, std::memory_order_relaxed);
  if (error == nullptr && !mirrors_.is_empty()) [[unlikely]] {
    try {
      mirrors_.write_back();
    } catch (...) {
      error = std::current_exception();
    }
  }
  complete(std::move(error));
}

void WorkState::begin_wait() {
  waits_->begin(this_thread_number(), id_);
}

void WorkState::end_wait() {
  waits_->end(this_thread_number());
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
  {
    const MutexLock lock(mutex_);
    if (!is_completed()) {
      callbacks_.push_back(std::move(callback));
      waits_->add_callback(id_);
      return;
    }
  }
  callback(settle());
}

void WorkState::set_check(std::function<void()> check) {
  const MutexLock lock(mutex_);
  check_ = std::move(check);
}

std::exception_ptr WorkState::settle() {
  // A second thread waits until the check is over. The check and its data are released in any case.
  const MutexLock lock(mutex_);
  const std::function<void()> check = std::exchange(check_, nullptr);
  if (error_ || !check) {
    return error_;
  }
  try {
    check();
    return nullptr;
  } catch (...) {
    return std::current_exception();
  }
}

}  // namespace unisono::comm
