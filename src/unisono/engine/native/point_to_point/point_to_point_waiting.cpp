#include <poll.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/spin.h"
#include "unisono/base/thread.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/transport/waiter.h"

namespace unisono::engine {
namespace {

using transport::Look;

// Others that want the lock wait for less than a microsecond.
constexpr int kSpinsPerLock = 16;

// How often the lock is taken for so many spins.
constexpr int n_locks(int n_spins) {
  return (n_spins + kSpinsPerLock - 1) / kSpinsPerLock;
}

}  // namespace

bool PointToPointProgress::needs_network(const MessageOperation& request) const {
  const collective::Topology& topology = parts_.transports.topology;
  return topology.n_nodes() > 1 &&
         (request.peer == kAnyRank || topology.node_of(request.peer) != topology.node());
}

transport::WaitMode PointToPointProgress::mode_of(const MessageOperation& request) const {
  if (needs_network(request)) {
    return transport::kBriefWait;
  }
  transport::WaitMode mode = transport::calling_wait(has_cores_);
  mode.n_spins = std::min(mode.n_spins, spin_limit_.n_spins());
  return mode;
}

// For the receive of one who waits while no other message is under way: what comes need not be
// posted, nor looked for elsewhere, for as long as this thread spins.
Arrival PointToPointProgress::spin_for(MessageOperation& request) {
  if (request.is_send) {
    return Arrival::kInvolved;
  }
  auto arrival = Arrival::kNotYet;
  const int n_spins = mode_of(request).n_spins;
  const int n_vain = transport::spin(n_locks(n_spins), [&] {
    const MutexLock lock(mutex_);
    arrival = receive_at_once(request, std::min(n_spins, kSpinsPerLock));
    return arrival == Arrival::kNotYet ? Look::kNothing : Look::kDone;
  });
  if (arrival == Arrival::kReceived && n_vain > 0) {
    spin_limit_.note_spun();
  }
  return arrival;
}

Arrival PointToPointProgress::receive_at_once(MessageOperation& request, int n_looks) {
  if (!requests_.empty() || is_stopping_ || parts_.failure.is_set()) {
    return Arrival::kInvolved;
  }
  auto arrival = Arrival::kNotYet;
  for (int n = 0; n < n_looks && arrival == Arrival::kNotYet; ++n) {
    if (n > 0) {
      pause_briefly();
    }
    const bool is_sound = guard([&]() UNISONO_REQUIRES(mutex_) {
      arrival = matcher_.receive_at_once(request);
      return true;
    });
    arrival = is_sound ? arrival : Arrival::kInvolved;
  }
  return arrival;
}

// Takes a step with the lock, and without it tells of what has ended meanwhile. Returns what the
// step does.
template <class Step>
bool PointToPointProgress::locked(Step step) {
  Requests finished;
  bool is_over = false;
  bool has_failed = false;
  {
    const MutexLock lock(mutex_);
    is_over = step();
    has_failed = error_.has_value() || parts_.failure.is_set();
    finished.swap(finished_);
  }
  if (has_failed) [[unlikely]] {
    settle_failure();
  }
  complete(finished);
  return is_over;
}

// After begin_spinning(): until `is_done`. Spins go by several with the lock held.
void PointToPointProgress::drive(std::uint64_t thread,
                                 const IsDone& is_done,
                                 transport::WaitMode mode,
                                 SpinLimit* spin_limit) {
  int n_spins_left = mode.n_spins;
  const auto look_once = [&] {
    const int n_looks = std::clamp(n_spins_left, 1, kSpinsPerLock);
    n_spins_left -= n_looks;
    return look(is_done, n_looks) ? Look::kDone : Look::kNothing;
  };
  bool is_newcomer = true;
  const auto sleep_once = [&] {
    if (is_newcomer) {
      (void)locked([this]() UNISONO_REQUIRES(mutex_) {
        end_spinning();
        return false;
      });
    }
    return sleep(thread, is_done, std::exchange(is_newcomer, false)) ? Look::kDone : Look::kNothing;
  };
  mode.n_spins = n_locks(mode.n_spins);
  transport::wait(mode, spin_limit, look_once, sleep_once);
}

// Looks up to `n_spins` times. True, and the spinning is over, once `is_done`.
bool PointToPointProgress::look(const IsDone& is_done, int n_spins) {
  return locked([&]() UNISONO_REQUIRES(mutex_) {
    bool is_over = false;
    bool has_failed = false;
    for (int n = 0; n < n_spins && !is_over && finished_.empty() && !has_failed; ++n) {
      if (n > 0) {
        pause_briefly();
      }
      (void)advance();
      is_over = is_done();
      has_failed = error_.has_value() || parts_.failure.is_set();
    }
    if (is_over) {
      end_spinning();
    }
    return is_over;
  });
}

// Sleeps once, for all if nobody else does. Who does must know what a newcomer waits for.
bool PointToPointProgress::sleep(std::uint64_t thread, const IsDone& is_done, bool is_newcomer) {
  return locked([&]() UNISONO_REQUIRES(mutex_) {
    if (!is_done() && !fail_overdue(thread)) {
      if (is_watched_) {
        if (is_newcomer) {
          wake_watch();
        }
        changed_.wait(mutex_);
      } else {
        is_watched_ = true;
        watch();
        is_watched_ = false;
        // Those whose messages have ended or are overdue, and who sleeps next.
        changed_.notify_all();
      }
    }
    return is_done();
  });
}

// Announces a sleep, looks once more, and sleeps if there was nothing.
void PointToPointProgress::watch() {
  is_polling_ = n_networked_ > 0;
  const std::size_t n_before = requests_.size();
  const std::uint32_t rings = endpoint_.prepare(is_polling_);
  if (is_polling_) {
    packet_streams_.clear_wakeups();
  }
  bool has_moved = advance();
  if (!has_moved) {
    const bool is_one_overdue = check_requests();
    const bool has_credit = !credit_until_.is_never() && debtors().empty();
    has_moved = is_one_overdue || requests_.size() != n_before || has_credit;
  }
  // A failure or message that comes after this look rings.
  const bool must_return_credit = error_.has_value() && !parts_.failure.is_set() && !is_settling_;
  if (!has_moved && !must_return_credit) {
    sleep_until(next_check(), rings);
  }
  endpoint_.stay();
  (void)advance();
}

void PointToPointProgress::sleep_until(Deadline deadline, std::uint32_t rings) {
  if (!is_polling_) {
    mutex_.unlock();
    endpoint_.sleep(rings, deadline);
    mutex_.lock();
    return;
  }
  std::vector<pollfd> polls;
  packet_streams_.add_polls(polls);
  deadline = earlier(deadline, packet_streams_.next_try());
  for (tcp::PacketStream* const stream : packet_streams_.peers()) {
    deadline = earlier(deadline, Deadline::after(transport::kLivenessLook));
    if (!stream->has_left()) {
      stream->frames().stream().add_polls(polls, true, stream->is_blocked());
    }
  }
  polls.push_back({.fd = endpoint_.bell_fd(), .events = POLLIN, .revents = 0});
  mutex_.unlock();
  (void)::poll(polls.data(), polls.size(), deadline.poll_timeout_ms());
  mutex_.lock();
}

Deadline PointToPointProgress::next_check() {
  Deadline next = credit_until_;
  for (MessageOperation* const request : requests_) {
    next = earlier(next, request->next_check());
  }
  return next;
}

// A thread that looks all the time makes up for one that sleeps: peers need not wake that.
void PointToPointProgress::begin_spinning() {
  if (n_spinning_++ == 0 && is_watched_) {
    endpoint_.stay();
  }
}

void PointToPointProgress::end_spinning() {
  if (--n_spinning_ > 0 || !is_watched_) {
    return;
  }
  (void)endpoint_.prepare(is_polling_);
  (void)advance();
  changed_.notify_all();
  if (std::exchange(must_wake_watch_, false)) {
    wake();
  }
}

// There is a new message, for which the sleeper may have to wake earlier, or look at another
// connection.
void PointToPointProgress::wake_watch() {
  if (!is_watched_) {
    return;
  }
  if (n_spinning_ > 0) {
    must_wake_watch_ = true;
  } else {
    wake();
  }
}

void PointToPointProgress::start_progress() {
  if (progress_thread_.joinable()) {
    return;
  }
  progress_thread_ = start_thread("unisono-message",
                                  "can't start the progress thread of its messages",
                                  [this] { make_progress(); });
}

void PointToPointProgress::make_progress() {
  while (true) {
    {
      const MutexLock lock(mutex_);
      while (n_async_ == 0 && !is_stopping_) {
        changed_.wait(mutex_);
      }
      if (n_async_ == 0) {
        return;
      }
      begin_spinning();
    }
    constexpr std::uint64_t kAsynchronous = 0;
    drive(
        kAsynchronous,
        [this]() UNISONO_REQUIRES(mutex_) { return n_async_ == 0; },
        transport::kBriefWait,
        nullptr);
  }
}

// Nothing else is under way, so that this thread alone drives.
void PointToPointProgress::await_credit(Deadline deadline) {
  const std::size_t n_networked = parts_.transports.topology.n_nodes() > 1 ? 1 : 0;
  const bool is_over = locked([&]() UNISONO_REQUIRES(mutex_) {
    (void)guard([&]() UNISONO_REQUIRES(mutex_) {
      matcher_.ask_for_credit();
      return matcher_.progress(true);  // A peer may ask this rank.
    });
    if (debtors().empty()) {
      return true;
    }
    n_networked_ += n_networked;
    credit_until_ = deadline;
    begin_spinning();
    return false;
  });
  if (is_over) {
    return;
  }
  drive(
      this_thread_number(),
      [this]() UNISONO_REQUIRES(mutex_) { return debtors().empty() || credit_until_.has_passed(); },
      transport::kBriefWait,
      nullptr);
  const MutexLock lock(mutex_);
  n_networked_ -= n_networked;
  credit_until_ = Deadline::never();
}

// The first thread that comes here makes the messages' error the group's, unless that has failed
// already; and tells the other ranks before any caller hears of it and may end the process.
void PointToPointProgress::settle_failure() {
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    if (std::exchange(is_settling_, true)) {
      return;
    }
    error = error_;
  }
  Requests finished;
  if (error && !parts_.failure.is_set()) {
    // Wakes all waits, which then end.
    (void)parts_.failure.set(parts_.health.explain(*error));
    const MutexLock lock(mutex_);
    (void)advance();
    changed_.notify_all();
    finished.swap(finished_);
  }
  tell_();
  complete(finished);
}

void PointToPointProgress::complete(const Requests& finished) const {
  for (const std::unique_ptr<MessageOperation>& request : finished) {
    const std::shared_ptr<MessageHandle> handle = std::move(request->handle);
    // An error of its own, whose text no other thread shares.
    const std::optional<Error>& error = request->error;
    std::exception_ptr exception =
        error ? std::make_exception_ptr(Error(error->code(), error->what())) : nullptr;
    // The buffers are the caller's again before it hears of the end.
    request->buffer = {};
    handle->complete(request->source, std::move(exception));
  }
}

}  // namespace unisono::engine
