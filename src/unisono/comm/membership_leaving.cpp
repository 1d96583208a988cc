#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/mutex.h"
#include "unisono/collective/reduce_plan.h"
#include "unisono/comm/job.h"
#include "unisono/comm/membership.h"
#include "unisono/engine/group_engine.h"
#include "unisono/engine/native_engines.h"
#include "unisono/health/group_registry.h"
#include "unisono/transport/descriptor.h"

namespace unisono::comm {
namespace {

// A rank that comes to its part of a call later than this finds this rank gone.
constexpr std::chrono::seconds kSettlePatience{3};

// Time between two questions to a rank that has not come to its part: at first, and at most.
constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{100};

}  // namespace

bool Membership::drain_messages(Deadline deadline) {
  return native_->drain_messages(deadline);
}

// Returns the ranks that may still find a mismatch, each for its node if it is in doubt over an
// operation. A rank that has left in good order has waited for its node before.
std::vector<int> Membership::find_doubtful() {
  std::vector<int> doubtful = native_->find_debtors();
  const std::uint64_t sequence = native_->find_doubtful_operation();
  const std::optional<transport::RankProgress> own = native_->own_progress();
  if (own && own->n_finished_on_node < sequence) {
    doubtful.push_back(topology_.rank());
  }
  for (int node = 0; sequence > 0 && node < topology_.n_nodes(); ++node) {
    const int deputy = collective::deputy_for(topology_, node, topology_.rank());
    const MutexLock lock(late_mutex_);
    if (node != topology_.node() && n_finished_on_node_[node] < sequence) {
      doubtful.push_back(deputy);
    }
  }
  std::erase_if(doubtful, [this](int rank) { return gone_.contains(rank); });
  return doubtful;
}

bool Membership::is_settled_by(Deadline deadline) {
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
      job_.logger().debug(
          fmt::format("{} leaves before it is known whether ranks {} expect its last calls",
                      ranks_.prefix(),
                      fmt::join(doubtful, ", ")));
      return true;
    }
    if (deadline.has_passed()) {
      return false;
    }
    const bool has_one_left = is_any_gone(doubtful);
    // Also reads what a rank has sent before it left.
    native_->await_credit(Deadline::after(pause));
    // A rank that failed, and is gone, has told another rank of this node.
    const bool is_idle = native_->find_debtors().empty();
    if (has_one_left || is_idle) {
      (void)failure_.wait_until_set(Deadline::after(has_one_left ? kLongestPause : pause));
    }
    pause = std::min(2 * pause, kLongestPause);
  }
  return true;
}

// Asks ranks where they are. Returns whether one of them has left.
bool Membership::is_any_gone(std::vector<int> ranks) {
  std::erase(ranks, topology_.rank());  // It stands for its node, which this rank can see.
  const std::vector<int> present = status_client_.find_present(ranks);
  for (const int rank : ranks) {
    if (std::find(present.begin(), present.end(), rank) == present.end()) {
      gone_.insert(rank);
    }
  }
  return present.size() < ranks.size();
}

void Membership::leave() {
  native_->finish_messages();
  const bool has_failed = failure_.is_set();
  // A circle of waits ends a call in each of its groups, and fails these on all of their ranks.
  const bool is_thrown = failure_.is_undelivered() &&
                         failure_.error().code() == ErrorCode::kMismatch && !job_.is_in_circle();
  if (has_failed) {
    const Error error = failure_.error();
    // The death of a rank that this one needs no more is not worth a warning.
    if (!has_told_ && !is_thrown && error.code() != ErrorCode::kPeerLost) {
      ranks_.report_unheard(error);
    }
    fail(error);
  }
  end_part(has_failed);
  if (is_thrown) {
    failure_.note_delivered();
    throw Error(failure_.error());
  }
}

void Membership::end_part(bool has_failed) noexcept {
  engine_->leave();
  native_->leave_messages();
  if (!has_failed) {
    native_->announce_leave();
  }
  health::MetRanks met = native_->close();
  diagnostics_store_.give_up();
  status_client_.finish();
  native_->leave_memory();
  // Where a rank failed, another may wake up late and still write there.
  if (setup_.number != 0 && !has_failed) {
    job_.engines().retire_group(setup_.offsets[static_cast<std::size_t>(topology_.local_rank())],
                                topology_.local_world_size());
  }
  const bool has_all = setup_.number != 0 || have_all_started_.load(std::memory_order_relaxed);
  job_.end_group(
      setup_.number,
      std::move(met),
      {.failure = has_failed ? std::optional(failure_.error()) : std::nullopt, .has_all = has_all});
}

}  // namespace unisono::comm
