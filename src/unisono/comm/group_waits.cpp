#include "unisono/comm/group_waits.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <utility>

#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/comm/job.h"
#include "unisono/peers/long_waits.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {

GroupWaits::GroupWaits(Job& job,
                       const GroupSetup& setup,
                       transport::JobRanks job_ranks,
                       const transport::Failure& failure)
    : job_(job), setup_(setup), job_ranks_(job_ranks), failure_(failure) {}

void GroupWaits::note_caller() {
  const std::uint64_t thread = this_thread_number();
  callers_.note(thread);
  job_.callers().note(thread);
}

int GroupWaits::job_rank_of(int rank) const {
  return setup_.roster.member(rank).job_rank;
}

void GroupWaits::note_late(std::uint64_t sequence, std::span<const int> late_ranks) {
  std::vector<transport::LateRank> job_ranks;
  for (const int rank : late_ranks) {
    job_ranks.push_back({.rank = job_rank_of(rank)});
  }
  const MutexLock lock(mutex_);
  late_ = {.sequence = sequence, .ranks = std::move(job_ranks), .thread = this_thread_number()};
}

std::vector<int> GroupWaits::late_ranks(std::uint64_t sequence) const {
  std::vector<int> ranks;
  const MutexLock lock(mutex_);
  if (late_.sequence == sequence) {
    for (const transport::LateRank& late : late_.ranks) {
      ranks.push_back(setup_.rank_of(late.rank));
    }
  }
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

std::optional<GroupWaits::OperationWait> GroupWaits::find_operation() const {
  const std::optional<transport::RankProgress> rank_progress = engine_->own_progress();
  if (!rank_progress || rank_progress->has_finished || failure_.is_set()) {
    return std::nullopt;
  }
  const MutexLock lock(mutex_);
  if (late_.sequence != rank_progress->sequence || late_.sequence == 0) {
    return std::nullopt;
  }
  return OperationWait{
      .wait = {.id = {.group = setup_.number, .sequence = rank_progress->sequence},
               .rank = setup_.roster.self().job_rank,
               .late = late_.ranks,
               .text = fmt::format(
                   "{} of {}",
                   transport::describe(
                       rank_progress->descriptor, rank_progress->sequence, {}, job_ranks_),
                   describe_group(setup_, job_.numbers()))},
      .thread = late_.thread};
}

std::optional<transport::Stall> GroupWaits::named(std::optional<transport::Stall> receive) const {
  if (!receive || failure_.is_set()) {
    return std::nullopt;
  }
  receive->text += " of " + describe_group(setup_, job_.numbers());
  return receive;
}

std::optional<transport::Stall> GroupWaits::find(const transport::WaitId& id) const {
  if (id.is_message) {
    return named(engine_->find_receive(id));
  }
  // Operations are executed in the order of their numbers.
  const std::optional<OperationWait> operation = find_operation();
  return operation && operation->wait.id.sequence <= id.sequence ? std::optional(operation->wait)
                                                                 : std::nullopt;
}

std::optional<transport::Stall> GroupWaits::find_of(std::uint64_t thread) const {
  const std::optional<OperationWait> operation = find_operation();
  return operation && operation->thread == thread ? std::optional(operation->wait)
                                                  : named(engine_->find_receive_of(thread));
}

std::optional<transport::Stall> GroupWaits::find_stuck(const transport::Stall& waiter) const {
  const int peer = setup_.rank_of(waiter.rank);
  if (peer < 0 || failure_.is_set()) {
    return std::nullopt;
  }
  if (waiter.id.is_message) {
    const int self = setup_.roster.self().job_rank;
    const auto late = std::find_if(
        waiter.late.begin(), waiter.late.end(), [self](const transport::LateRank& one) {
          return one.rank == self;
        });
    if (late == waiter.late.end() || engine_->n_sent(peer) != late->n_arrived) {
      return std::nullopt;  // A message is in flight.
    }
  } else if (n_calls() >= waiter.id.sequence) {
    return find(waiter.id);
  }
  // The operation has not been called yet.
  const std::optional<std::uint64_t> caller =
      callers_.has_none() ? job_.callers().thread() : callers_.thread();
  return caller ? job_.find_wait_of(*caller) : std::nullopt;
}

void GroupWaits::show(const transport::WaitId& id, LongWait wait) const {
  peers::LongWaits* const shown = job_.long_waits();
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

void GroupWaits::hide(const transport::WaitId& id) const noexcept {
  if (peers::LongWaits* const shown = job_.long_waits()) {
    shown->forget(id);
  }
}

void GroupWaits::set_deadlock(const Error& error) {
  job_.note_circle();
  const MutexLock lock(mutex_);
  deadlock_ = error;
}

std::optional<Error> GroupWaits::deadlock() const {
  const MutexLock lock(mutex_);
  return deadlock_;
}

namespace {

// Limit of the wait for other ranks' parts. A later rank finds that this rank is gone.
constexpr std::chrono::seconds kSettlePatience{3};

// First pause between two questions to a rank that has not reached its part.
constexpr std::chrono::milliseconds kFirstPause{1};
// Upper limit of the pause, which doubles after each question.
constexpr std::chrono::milliseconds kLongestPause{100};

}  // namespace

GroupDeparture::GroupDeparture(const collective::Topology& topology,
                               const peers::RankStatus& ranks,
                               const transport::Failure& failure,
                               peers::StatusClient& status,
                               engine::GroupEngine& engine)
    : topology_(topology), ranks_(ranks), failure_(failure), status_(status), engine_(engine) {}

void GroupDeparture::note_finished(int node, std::uint64_t n_operations) {
  const MutexLock lock(mutex_);
  std::uint64_t& n_finished = n_finished_on_node_[node];
  n_finished = std::max(n_finished, n_operations);
}

// Returns the ranks that may still find a mismatch; each stands for a node if the doubt is about an
// operation. A rank that has left cleanly has waited for its node before.
std::vector<int> GroupDeparture::find_doubtful() {
  std::vector<int> doubtful = engine_.find_debtors();
  const std::uint64_t sequence = engine_.find_doubtful_operation();
  const std::optional<transport::RankProgress> own = engine_.own_progress();
  if (own && own->n_finished_on_node < sequence) {
    doubtful.push_back(topology_.rank());
  }
  for (int node = 0; sequence > 0 && node < topology_.n_nodes(); ++node) {
    const int deputy = collective::deputy_for(topology_, node, topology_.rank());
    const MutexLock lock(mutex_);
    if (node != topology_.node() && n_finished_on_node_[node] < sequence) {
      doubtful.push_back(deputy);
    }
  }
  std::erase_if(doubtful, [this](int rank) { return gone_.contains(rank); });
  return doubtful;
}

bool GroupDeparture::is_settled_by(Deadline deadline) {
  if (!settling_until_) {
    settling_until_ = Deadline::after(kSettlePatience);
  }
  std::chrono::milliseconds pause = kFirstPause;
  while (!failure_.is_set()) {
    const std::vector<int> doubtful = find_doubtful();
    if (doubtful.empty()) {
      return true;
    }
    if (settling_until_->has_passed()) {
      ranks_.logger().debug(
          fmt::format("{} leaves before it is known whether ranks {} expect its last calls",
                      ranks_.prefix(),
                      fmt::join(doubtful, ", ")));
      return true;
    }
    if (deadline.has_passed()) {
      return false;
    }
    const bool has_one_left = is_any_gone(doubtful);
    // This call reads the messages that a rank has sent before it left, too.
    engine_.await_credit(Deadline::after(pause));
    // A rank that failed and is gone has reported to another rank of this node.
    const bool is_idle = engine_.find_debtors().empty();
    if (has_one_left || is_idle) {
      (void)failure_.wait_until_set(Deadline::after(has_one_left ? kLongestPause : pause));
    }
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

// Asks ranks for their progress. Returns whether any rank has left.
bool GroupDeparture::is_any_gone(std::vector<int> ranks) {
  // This rank stands for its own node, and reads that node's state directly.
  std::erase(ranks, topology_.rank());
  const std::vector<int> present = status_.find_present(ranks);
  for (const int rank : ranks) {
    if (std::find(present.begin(), present.end(), rank) == present.end()) {
      gone_.insert(rank);
    }
  }
  return present.size() < ranks.size();
}

}  // namespace unisono::comm
