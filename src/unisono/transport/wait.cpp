#include "unisono/transport/wait.h"

#include <algorithm>
#include <utility>

namespace unisono::transport {

namespace {

// Delay before the first look_into(): long compared with an operation, short for a caller that
// waits for an explanation.
constexpr std::chrono::milliseconds kFirstLook{200};

// Interval between calls of listen(). Bounds how long a rank waits on after another rank has
// failed.
constexpr std::chrono::seconds kBetweenListenings{1};

// Delay before the second check of the late ranks; doubles from then on. Other ranks make a first
// check at about the same time, so the results are available soon after.
constexpr std::chrono::milliseconds kSecondLook{100};

}  // namespace

WaitMonitor::WaitMonitor(TimeLimit limit,
                         std::chrono::milliseconds first_stall,
                         const Failure& failure,
                         const WaitObserver& observer)
    : limit_(limit),
      look_(kSecondLook),
      stall_(first_stall),
      first_stall_(first_stall),
      failure_(failure),
      observer_(observer) {}

void WaitMonitor::begin() {
  if (!has_begun_) {
    has_begun_ = true;
    begin_ = Deadline::Clock::now();
    waited_since_ = begin_;
    moved_ = begin_;
    (void)limit_.deadline();
    next_look_ = Deadline::at(begin_ + kFirstLook);
    next_listening_ = next_look_;
    next_stall_ = Deadline::at(begin_ + stall_);
    next_interruption_ = next_interruption_check();
  }
}

Deadline WaitMonitor::next_check() {
  begin();
  return earlier(earlier(earlier(limit_.deadline(), next_stall_), next_interruption_),
                 earlier(next_look_, next_listening_));
}

void WaitMonitor::check(const std::function<std::vector<int>()>& late_ranks) {
  begin();
  failure_.throw_if_set();
  if (next_interruption_.has_passed()) {
    next_interruption_ = next_interruption_check();
    check_interruption();
  }
  std::vector<int> late = late_ranks();
  if (observer_.departed(late)) {
    // A rank that has left may have done its part before, so the late ranks are determined again.
    late = late_ranks();
    const std::optional<Error> departure = late.empty() ? std::nullopt : observer_.departed(late);
    if (departure) {
      throw Error(*departure);
    }
  }
  if (late.empty()) {
    hide();
    return;
  }
  if (next_listening_.has_passed()) {
    next_listening_ = Deadline::after(kBetweenListenings);
    observer_.listen();
    failure_.throw_if_set();
  }
  if (next_look_.has_passed()) {
    next_look_ = Deadline::after(look_);
    look_ *= 2;
    observer_.look_into(late);
  }
  if (limit_.deadline().has_passed()) {
    throw observer_.timed_out(late);
  }
  if (!is_waited_for()) {
    return;
  }
  if (next_stall_.has_passed()) {
    const auto waited = std::chrono::duration_cast<std::chrono::milliseconds>(
        Deadline::Clock::now() - waited_since_);
    observer_.stalled(waited, late);
    stall_ *= 2;
    next_stall_ = Deadline::after(stall_ - waited);
  }
  show(late);
}

// A new wait for the same operation restarts the stall timer, so that each wait is measured
// separately.
bool WaitMonitor::is_waited_for() {
  const auto since = observer_.waited_since();
  const auto begin = since ? std::max(begin_, *since) : Deadline::Clock::now();
  if (begin != waited_since_) {
    hide();
    waited_since_ = begin;
    moved_ = std::max(moved_, begin);
    stall_ = first_stall_;
    next_stall_ = Deadline::at(begin + stall_);
  }
  return since.has_value();
}

// Data that arrives between two checks sets moved_ to the time of the second check, so that
// note_progress() need not read the clock.
void WaitMonitor::show(std::span<const int> late_ranks) {
  const Deadline::Clock::time_point now = Deadline::Clock::now();
  if (std::exchange(has_moved_, false)) {
    moved_ = now;
  }
  if (now - moved_ >= first_stall_) {
    is_shown_ = true;
    observer_.show(moved_, late_ranks);
  }
}

}  // namespace unisono::transport
