#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/native/point_to_point/message_matcher.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"

namespace unisono::engine {
namespace {

// What was sent before its rank left is here by then.
constexpr std::chrono::seconds kReceivePatience{1};

}  // namespace

void PointToPointProgress::give_up_receives() {
  for (Message* const message : matcher_.give_up_receives()) {
    auto& request = static_cast<MessageOperation&>(*message);
    fail_request(request,
                 Error(ErrorCode::kClosed,
                       fmt::format("{}: the process group was destroyed before a message came",
                                   name_of(request))));
  }
  show_waits();
  // Whose threads sleep.
  changed_.notify_all();
  wake();
}

bool PointToPointProgress::drain(Deadline deadline) {
  const MutexLock lock(mutex_);
  if (!std::exchange(is_stopping_, true)) {
    giving_up_ = Deadline::after(kReceivePatience);
    changed_.notify_all();
    wake();
  }
  while (!requests_.empty() || is_listening_) {
    if (giving_up_.has_passed()) {
      giving_up_ = Deadline::never();
      give_up_receives();
    } else if (deadline.has_passed()) {
      return false;
    } else if (const Deadline next = earlier(deadline, giving_up_); next.is_never()) {
      changed_.wait(mutex_);
    } else {
      (void)changed_.wait_until(mutex_, next.time());
    }
  }
  return true;
}

std::vector<int> PointToPointProgress::find_debtors() {
  const MutexLock lock(mutex_);
  return debtors();
}

std::vector<int> PointToPointProgress::debtors() const {
  std::vector<int> ranks;
  if (error_ || parts_.failure.is_set()) {
    return ranks;
  }
  for (int rank = 0; rank < parts_.transports.topology.world_size(); ++rank) {
    if (matcher_.owes_credit(rank) && !matcher_.has_left(rank) &&
        !parts_.ranks.has_departed_from_messages(rank)) {
      ranks.push_back(rank);
    }
  }
  return ranks;
}

void PointToPointProgress::finish() {
  (void)drain(Deadline::never());
  std::thread progress;
  {
    const MutexLock lock(mutex_);
    progress = std::move(progress_thread_);
  }
  if (progress.joinable()) {
    progress.join();
  }
}

void PointToPointProgress::leave() noexcept {
  const MutexLock lock(mutex_);
  packet_streams_.leave();
}

}  // namespace unisono::engine
