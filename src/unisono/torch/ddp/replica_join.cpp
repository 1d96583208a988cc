// A replica under join().
#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/join.h"
#include "unisono/torch/ddp/joined_step.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"

namespace unisono::ddp {
namespace {

// As many as an announcement can tell apart.
constexpr std::size_t kMostJoined = 8;

}  // namespace

void Replica::begin_join(const JoinOptions& options, const std::vector<Replica*>& joined) {
  if (join_) {
    throw group_->refuse("DistributedDataParallel", "join() is called within join()");
  }
  if (logical_) {
    throw group_->refuse("DistributedDataParallel",
                         "with logical_ranks each step has all shards, so there is no join()");
  }
  if (options_.weigh_samples) {
    throw group_->refuse("DistributedDataParallel",
                         "with weigh_samples there is no join(): a rank without batches calls "
                         "run_step(0, ...), until that returns false");
  }
  if (joined_step_ && !joined_step_->has_shadow()) {
    throw group_->refuse(
        "DistributedDataParallel",
        "an optimizer makes its steps in this model's backward passes, which ranks "
        "without batches have none of; under join() leave overlap_with() out, and "
        "call join_with()");
  }
  if (joined_step_ && joined.size() > kMostJoined) {
    throw group_->refuse("DistributedDataParallel",
                         "join() has " + std::to_string(joined.size()) +
                             " models; where an optimizer is tied to one of them there may be " +
                             std::to_string(kMostJoined));
  }
  join_.emplace(Join{.options = options, .joined = joined});
  reducer_->pause_comparison(true);  // a rank without batches stays behind
}

void Replica::set_joined_step(std::shared_ptr<JoinedStep> step) {
  if (joined_step_) {
    throw group_->refuse("DistributedDataParallel", "an optimizer is tied to this model already");
  }
  if (!sparse_.empty() && step->has_shadow()) {
    throw group_->refuse("DistributedDataParallel",
                         "the module has sparse gradients, which ranks without batches don't get; "
                         "build its embeddings with sparse(false), or leave join_with() out");
  }
  joined_step_ = std::move(step);
  joined_step_->set_model(this);
  reducer_->set_averages_of_shadows(joined_step_->has_shadow());
}

void Replica::drop_joined_step() noexcept {
  joined_step_.reset();
  reducer_->set_averages_of_shadows(false);
}

std::optional<int> Replica::announce_step() {
  if (!join_) {
    return {};
  }
  const auto self = std::ranges::find(join_->joined, this);
  announce({.is_active = true,
            .is_step = true,
            .model = static_cast<std::size_t>(self - join_->joined.begin())});
  return join_->root;
}

void Replica::shadow_step(int root) const {
  if (!joined_step_ || !joined_step_->has_shadow()) {
    throw group_->refuse("DistributedDataParallel",
                         "rank " + std::to_string(root) +
                             " called step() of an optimizer that is tied to this model there, and "
                             "not here; call join_with() on every rank");
  }
  joined_step_->run_shadow(root);
}

Replica::Part Replica::announce(const Part& mine) {
  constexpr unsigned kActive = 1;
  constexpr unsigned kSynchronized = 2;
  constexpr unsigned kTraining = 4;
  constexpr unsigned kThawed = 8;
  constexpr unsigned kStep = 16;
  constexpr unsigned kModelShift = 5;
  std::vector<std::uint8_t> parts(static_cast<std::size_t>(group_->world_size()), 0);
  parts[static_cast<std::size_t>(group_->rank())] = static_cast<std::uint8_t>(
      (mine.is_active ? kActive : 0) | (mine.is_synchronized ? kSynchronized : 0) |
      (mine.is_training ? kTraining : 0) | (mine.has_thawed ? kThawed : 0) |
      (mine.is_step ? kStep : 0) | (mine.model << kModelShift));
  group_->all_reduce(as_buffer(std::span<std::uint8_t>(parts)),
                     {.op = kMax, .timeout = options_.timeout, .label = "join: who has a batch"});
  const auto first = std::ranges::find_if(parts, [](std::uint8_t part) { return part != 0; });
  if (first == parts.end()) {
    return {};
  }
  join_->root = static_cast<int>(first - parts.begin());
  const auto done = std::ranges::find(parts, 0);
  if (join_->options.throw_on_early_termination && done != parts.end()) {
    throw Error(ErrorCode::kMismatch,
                "[rank " + std::to_string(group_->rank()) + "] DistributedDataParallel: rank " +
                    std::to_string(done - parts.begin()) + " has no batches left, and rank " +
                    std::to_string(join_->root) + " has; join() was told to throw then");
  }
  const auto n_active =
      static_cast<double>(parts.size()) - static_cast<double>(std::ranges::count(parts, 0));
  reducer_->set_gradient_factor(join_->options.divide_by_initial_world_size
                                    ? 1
                                    : static_cast<double>(parts.size()) / n_active);
  return {
      .is_active = true,
      .is_synchronized = (*first & kSynchronized) != 0,
      .is_training = (*first & kTraining) != 0,
      .has_thawed = std::ranges::any_of(parts, [](unsigned part) { return (part & kThawed) != 0; }),
      .is_step = (*first & kStep) != 0,
      .model = static_cast<std::size_t>(*first >> kModelShift)};
}

bool Replica::shadow_pass() {
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  Part part = announce({});
  while (part.is_step) {
    join_->joined.at(part.model)->shadow_step(join_->root);
    part = announce({});
  }
  if (part.is_active) {
    prepare_pass(part, join_->root);
    reducer_->timer().begin(begin);
    reducer_->timer().add_exposed(std::chrono::steady_clock::now() - begin);
    if (part.is_synchronized) {
      reducer_->shadow_pass();
    }
  }
  return part.is_active;
}

void Replica::end_join() noexcept {
  reducer_->set_gradient_factor(1);
  reducer_->pause_comparison(false);
  join_.reset();
}

int Replica::take_final_values() {
  CoalescedBroadcast(wrapped_.parameters(), "parameters")
      .run(*group_, options_.timeout, join_->root);
  buffers_.run(*group_, options_.timeout, join_->root);
  return join_->root;
}

}  // namespace unisono::ddp
