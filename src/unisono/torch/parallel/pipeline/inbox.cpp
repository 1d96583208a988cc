#include "unisono/torch/parallel/pipeline/inbox.h"

#include <cstddef>
#include <exception>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/base/mutex.h"

namespace unisono::parallel {

void Inbox::put(std::size_t place, Delivery delivery) {
  {
    const MutexLock lock(mutex_);
    places_[place] = std::move(delivery);
    ++n_come_;
  }
  has_changed_.notify_one();
}

void Inbox::fail(std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }
  has_changed_.notify_one();
}

bool Inbox::has(std::size_t place) {
  const MutexLock lock(mutex_);
  return places_[place].has_value();
}

Delivery Inbox::take(std::size_t place) {
  const MutexLock lock(mutex_);
  UNISONO_CHECK(places_[place].has_value(), "a delivery is taken before it has come");
  Delivery delivery = std::move(*places_[place]);
  places_[place].reset();
  return delivery;
}

void Inbox::wait() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      const Deadline next_look = next_interruption_check();
      bool is_in_time = true;
      while (n_come_ == n_seen_ && error_ == nullptr && is_in_time) {
        if (next_look.is_never()) {
          has_changed_.wait(mutex_);
        } else {
          is_in_time = has_changed_.wait_until(mutex_, next_look.time());
        }
      }
      if (n_come_ != n_seen_ || error_ != nullptr) {
        n_seen_ = n_come_;
        break;
      }
    }
    check_interruption();
  }
  throw_if_failed();
}

void Inbox::throw_if_failed() {
  std::exception_ptr error;
  {
    const MutexLock lock(mutex_);
    error = error_;
  }
  if (error != nullptr) {
    std::rethrow_exception(error);
  }
}

}  // namespace unisono::parallel
