#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/point_to_point/message.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/engine/wait_id.h"

namespace unisono::engine {
namespace {

// Of each rank. What comes unasked for waits in memory.
constexpr int kPacketsPerListening = 16;

}  // namespace

template <class IsIt>
std::optional<WaitingReceive> PointToPointProgress::find_receive_where(IsIt is_it) {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const auto* request) {
    return request->is_unanswered_receive() && is_it(*request);
  });
  if (found == requests_.end()) {
    return std::nullopt;
  }
  const MessageOperation& request = **found;
  WaitingReceive receive{.id = request.id,
                         .is_for_any = request.peer == kAnyRank,
                         .senders = {},
                         .gone = {},
                         .text = describe(request, parts_.ranks.job_ranks())};
  for (int rank = 0; rank < waiting_.world_size; ++rank) {
    const bool is_other = receive.is_for_any && rank != waiting_.rank;
    if (rank == request.peer || (is_other && request.may_send(rank))) {
      receive.senders.push_back({.rank = rank, .n_arrived = matcher_.n_arrived(rank)});
    } else if (is_other) {
      receive.gone.push_back(rank);
    }
  }
  return receive;
}

std::optional<WaitingReceive> PointToPointProgress::find_receive_of(std::uint64_t thread) {
  const MutexLock lock(mutex_);
  return find_receive_where([thread](const auto& request) { return request.thread == thread; });
}

std::optional<WaitingReceive> PointToPointProgress::find_receive(const WaitId& id) {
  const MutexLock lock(mutex_);
  return find_receive_where([&id](const auto& request) { return request.id == id; });
}

std::uint64_t PointToPointProgress::n_sent(int rank) {
  const MutexLock lock(mutex_);
  return matcher_.n_sent(rank);
}

void PointToPointProgress::on_failure(std::function<void()> tell) {
  const MutexLock lock(mutex_);
  tell_ = std::move(tell);
}

void PointToPointProgress::listen() noexcept {
  std::optional<Error> error;
  {
    const MutexLock lock(mutex_);
    if (is_stopping_ || !tell_) {
      return;
    }
    is_listening_ = true;
    // Else somebody else looks, or there is nothing to hear any more.
    const bool must_look = n_networked_ == 0 && !is_settling_ && !parts_.failure.is_set();
    for (int n = 0; must_look && n < kPacketsPerListening; ++n) {
      const bool has_moved =
          guard([&]() UNISONO_REQUIRES(mutex_) { return matcher_.progress_between_nodes(); });
      if (!has_moved) {
        break;
      }
    }
    error = must_look ? error_ : std::nullopt;
  }
  if (error) {
    (void)parts_.failure.set(*error);
  }
  if (parts_.failure.is_set()) {
    tell_();
  }
  {
    const MutexLock lock(mutex_);
    is_listening_ = false;
  }
  changed_.notify_all();
}

}  // namespace unisono::engine
