#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/base/thread.h"
#include "unisono/base/wait_record.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/engine/group_engine.h"
#include "unisono/health/long_waits.h"
#include "unisono/health/rank_wait.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/transport/describe.h"

namespace unisono::comm {

int Membership::job_rank_of(int rank) const {
  return setup_.roster.members[static_cast<std::size_t>(rank)].rank;
}

void Membership::note_late(std::uint64_t sequence, std::span<const int> late_ranks) {
  std::vector<health::LateRank> job_ranks;
  for (const int rank : late_ranks) {
    job_ranks.push_back({.rank = job_rank_of(rank)});
  }
  const MutexLock lock(late_mutex_);
  late_ = {.sequence = sequence, .ranks = std::move(job_ranks), .thread = this_thread_number()};
}

std::vector<int> Membership::late_ranks(std::uint64_t sequence) const {
  std::vector<int> ranks;
  const MutexLock lock(late_mutex_);
  if (late_.sequence == sequence) {
    for (const health::LateRank& late : late_.ranks) {
      ranks.push_back(rank_of(late.rank));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<Membership::OperationWait> Membership::find_operation_wait() const {
  const std::optional<transport::RankProgress> rank_progress = native_->own_progress();
  if (!rank_progress || rank_progress->has_finished || failure_.is_set()) {
    return std::nullopt;
  }
  const MutexLock lock(late_mutex_);
  if (late_.sequence != rank_progress->sequence || late_.sequence == 0) {
    return std::nullopt;
  }
  return OperationWait{
      .wait = {.id = {.group = setup_.number, .sequence = rank_progress->sequence},
               .rank = setup_.roster.self().rank,
               .late = late_.ranks,
               .text = fmt::format(
                   "{} of {}",
                   transport::describe(
                       rank_progress->descriptor, rank_progress->sequence, {}, job_ranks()),
                   describe_group(setup_, job_.numbers()))},
      .thread = late_.thread};
}

std::optional<health::RankWait> Membership::wait_of(std::optional<health::RankWait> receive) const {
  if (!receive || failure_.is_set()) {
    return std::nullopt;
  }
  receive->text += " of " + describe_group(setup_, job_.numbers());
  return receive;
}

std::optional<health::RankWait> Membership::find_wait(const health::WaitId& id) const {
  if (id.is_message) {
    return wait_of(native_->find_receive(id));
  }
  // Operations have their turn one after the other.
  const std::optional<OperationWait> operation = find_operation_wait();
  return operation && operation->wait.id.sequence <= id.sequence ? std::optional(operation->wait)
                                                                 : std::nullopt;
}

std::optional<health::RankWait> Membership::find_wait_of(std::uint64_t thread) const {
  const std::optional<OperationWait> operation = find_operation_wait();
  return operation && operation->thread == thread ? std::optional(operation->wait)
                                                  : wait_of(native_->find_receive_of(thread));
}

std::optional<health::RankWait> Membership::find_stuck_wait(const health::RankWait& waiter) const {
  const int peer = rank_of(waiter.rank);
  if (peer < 0 || failure_.is_set()) {
    return std::nullopt;
  }
  if (waiter.id.is_message) {
    const int self = setup_.roster.self().rank;
    const auto late =
        std::find_if(waiter.late.begin(), waiter.late.end(), [self](const health::LateRank& one) {
          return one.rank == self;
        });
    if (late == waiter.late.end() || native_->n_sent(peer) != late->n_arrived) {
      return std::nullopt;  // Something is on its way.
    }
  } else if (n_calls_.load(std::memory_order_relaxed) >= waiter.id.sequence) {
    return find_wait(waiter.id);
  }
  // It is yet to be called.
  const std::optional<std::uint64_t> caller =
      callers_.has_none() ? job_.callers().thread() : callers_.thread();
  return caller ? job_.find_wait_of(*caller) : std::nullopt;
}

void Membership::look_for_cycle(const health::WaitId& wait) {
  job_.cycles().look(wait);
}

void Membership::show_wait(const health::WaitId& id, LongWait wait) const {
  health::LongWaits* const shown = job_.long_waits();
  if (shown == nullptr) {
    return;
  }
  wait.seen = Deadline::Clock::now();
  if (setup_.number != 0) {
    wait.operation += " of " + describe_group(setup_, job_.numbers());
  }
  for (int& rank : wait.late) {
    rank = job_rank_of(rank);
  }
  shown->note(id, std::move(wait));
}

void Membership::hide_wait(const health::WaitId& id) const noexcept {
  if (health::LongWaits* const shown = job_.long_waits()) {
    shown->forget(id);
  }
}

void Membership::hear_verdict(const Error& verdict) {
  job_.note_circle();
  const MutexLock lock(late_mutex_);
  verdict_.emplace(verdict.code(), fmt::format("{} {}", ranks_.prefix(), verdict.what()));
}

void Membership::end_with(const Error& verdict) {
  failure_.set({verdict.code(), fmt::format("{} {}", ranks_.prefix(), verdict.what())});
}

std::optional<Error> Membership::find_verdict() const {
  const MutexLock lock(late_mutex_);
  return verdict_;
}

}  // namespace unisono::comm
