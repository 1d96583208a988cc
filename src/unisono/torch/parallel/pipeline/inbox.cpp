#include "unisono/torch/parallel/pipeline/inbox.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <exception>
#include <span>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/interruption.h"
#include "unisono/base/mutex.h"
#include "unisono/comm/work.h"

namespace unisono::parallel {
namespace {

// Of shorter waits nobody hears, so they need not say for what they are.
constexpr std::chrono::milliseconds kShort{100};

}  // namespace

void Inbox::expect(std::size_t place, const Work& part) {
  const MutexLock lock(mutex_);
  on_their_way_[place].push_back(part);
  if (is_long_) {
    changed_.notify_one();
  }
}

void Inbox::put(std::size_t place, Delivery delivery) {
  {
    const MutexLock lock(mutex_);
    places_[place] = std::move(delivery);
    on_their_way_[place].clear();
    ++n_come_;
  }
  changed_.notify_one();
}

void Inbox::fail(std::exception_ptr error) {
  {
    const MutexLock lock(mutex_);
    if (error_ == nullptr) {
      error_ = std::move(error);
    }
  }
  changed_.notify_one();
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

void Inbox::wait(std::span<const std::size_t> places) {
  WaitMark mark;
  const Deadline long_from = Deadline::after(kShort);
  while (!sleep(long_from, places, mark)) {
    check_interruption();
  }
  throw_if_failed();
}

// Returns whether something has come; if not, it is time to look for an interruption.
bool Inbox::sleep(Deadline long_from, std::span<const std::size_t> places, WaitMark& mark) {
  const Deadline next_look = next_interruption_check();
  const MutexLock lock(mutex_);
  while (n_come_ == n_seen_ && error_ == nullptr && !next_look.has_passed()) {
    is_long_ = long_from.has_passed();
    if (is_long_) {
      for (const std::size_t place : places) {
        std::ranges::for_each(on_their_way_[place], [&](const Work& part) { mark.add(part); });
      }
    }
    const Deadline next = is_long_ ? next_look : earlier(next_look, long_from);
    if (next.is_never()) {
      changed_.wait(mutex_);
    } else {
      (void)changed_.wait_until(mutex_, next.time());
    }
  }
  is_long_ = false;
  const bool has_come = n_come_ != n_seen_ || error_ != nullptr;
  n_seen_ = n_come_;
  return has_come;
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
