#include "unisono/comm/work.h"

#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/thread.h"
#include "unisono/comm/work_state.h"

namespace unisono {
namespace {

// Ends a wait of this thread: throws the operation's error, or makes the thread's work on a device
// follow the results.
void finish_wait(comm::WorkState& state) {
  if (const std::exception_ptr error = state.settle()) {
    std::rethrow_exception(error);
  }
  state.mirrors().follow();
}

}  // namespace

void WaitMark::add(const Work& work) {
  if (!work.is_completed()) {
    work.state_->begin_wait();
    state_ = work.state_;
  }
}

WaitMark::~WaitMark() {
  if (state_ != nullptr) {
    state_->end_wait();
  }
}

void Work::wait() const {
  if (state_ != nullptr) {
    const WaitMark mark(*this);
    while (!state_->wait_until(next_interruption_check())) {
      check_interruption();
    }
    finish_wait(*state_);
  }
}

void Work::synchronize(std::chrono::nanoseconds timeout) const {
  wait();
  if (state_ != nullptr) {
    state_->mirrors().synchronize(Deadline::after(timeout));
  }
}

bool Work::try_wait(std::chrono::nanoseconds duration) const {
  if (state_ == nullptr) {
    return true;
  }
  if (!state_->wait_until(Deadline::after(duration))) {
    return false;
  }
  finish_wait(*state_);
  return true;
}

bool Work::is_completed() const {
  return state_ == nullptr || state_->is_completed();
}

std::exception_ptr Work::exception() const {
  return state_ == nullptr ? nullptr : state_->error();
}

void Work::on_completion(std::function<void(std::exception_ptr)> callback) const {
  if (state_ == nullptr) {
    callback(nullptr);
  } else {
    state_->on_completion(std::move(callback));
  }
}

int Work::source_rank() const {
  return is_completed() && state_ != nullptr ? state_->source() : -1;
}

std::uint64_t Work::sequence_number() const {
  return state_ == nullptr ? 0 : state_->sequence();
}

}  // namespace unisono
