#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/engine/message_call.h"
#include "unisono/engine/native/point_to_point/message_operation.h"
#include "unisono/engine/native/point_to_point/point_to_point_progress.h"
#include "unisono/health/rank_wait.h"
#include "unisono/health/wait_id.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::engine {
namespace {

// Of each rank. What comes unasked for waits in memory.
constexpr int kPacketsPerListening = 16;

}  // namespace

template <class IsIt>
std::optional<health::RankWait> PointToPointProgress::find_receive_where(IsIt is_it) {
  const rendezvous::Roster& roster = parts_.transports.roster;
  std::optional<health::RankWait> wait;
  std::vector<int> gone;
  {
    const MutexLock lock(mutex_);
    const auto found = std::find_if(requests_.begin(), requests_.end(), [&](const auto* request) {
      return request->is_unanswered_receive() && is_it(*request);
    });
    if (found == requests_.end()) {
      return std::nullopt;
    }
    const MessageOperation& request = **found;
    wait = health::RankWait{.id = request.id,
                            .rank = roster.self().rank,
                            .late = {},
                            .is_for_any = request.peer == kAnyRank,
                            .text = describe(request, parts_.ranks.job_ranks())};
    for (int rank = 0; rank < roster.world_size(); ++rank) {
      const bool is_other = wait->is_for_any && rank != roster.rank;
      if (rank == request.peer || (is_other && request.may_send(rank))) {
        wait->late.push_back({.rank = roster.members[static_cast<std::size_t>(rank)].rank,
                              .n_arrived = matcher_.n_arrived(rank)});
      } else if (is_other) {
        gone.push_back(rank);
      }
    }
  }
  wait->gone = gone.empty() ? "" : parts_.ranks.describe_late(gone);
  return wait;
}

std::optional<health::RankWait> PointToPointProgress::find_receive_of(std::uint64_t thread) {
  return find_receive_where([thread](const auto& request) { return request.thread == thread; });
}

std::optional<health::RankWait> PointToPointProgress::find_receive(const health::WaitId& id) {
  return find_receive_where([&id](const auto& request) { return request.id == id; });
}

// Asks what the ranks do for which messages of this thread have waited in vain, and fails them.
// Returns whether it has asked, and so may have missed a wake-up. No thread asks for another's: its
// own messages may get on.
bool PointToPointProgress::fail_overdue(std::uint64_t thread) {
  const auto find = [this](const auto& is_it) UNISONO_REQUIRES(mutex_) {
    const auto found = std::find_if(requests_.begin(), requests_.end(), is_it);
    return found == requests_.end() ? nullptr : *found;
  };
  const auto find_overdue = [&]() UNISONO_REQUIRES(mutex_) {
    return find([&](const MessageOperation* request) {
      return request->is_overdue() && request->thread == thread;
    });
  };
  bool has_asked = false;
  for (const MessageOperation* overdue = find_overdue(); overdue != nullptr && !error_;
       overdue = find_overdue()) {
    const health::WaitId id = overdue->id;
    const int peer = overdue->peer;
    has_asked = true;
    mutex_.unlock();
    const std::string late = ask(peer);
    mutex_.lock();
    // Its message may have come meanwhile.
    (void)advance();
    const MessageOperation* const same =
        find([&](const MessageOperation* request) { return request->id == id; });
    if (same != nullptr) {
      (void)guard([&]() -> bool { same->expire(late); });
    }
  }
  return has_asked;
}

// What the rank does that a message waits for; nothing where that can't be found out.
std::string PointToPointProgress::ask(int peer) const noexcept {
  try {
    return peer == kAnyRank ? "" : parts_.status.describe_overdue(std::span(&peer, 1));
  } catch (const std::exception&) {
    return "";  // Out of memory, say.
  }
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
    const bool is_idle = requests_.empty();
    for (int n = 0; must_look && n < kPacketsPerListening; ++n) {
      // Where nothing is under way no message ends.
      const bool has_moved = guard([&]() UNISONO_REQUIRES(mutex_) {
        return is_idle ? matcher_.progress(true) : matcher_.progress_between_nodes();
      });
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
