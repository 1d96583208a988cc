#include "unisono/torch/ddp/join.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/report/step_report.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/replica.h"

namespace unisono::ddp {
namespace {

// The largest number of models that the bits of an announcement can distinguish.
constexpr std::size_t kMostJoined = 8;

// RAII guard: the replicas are joined while the guard lives, however the loop ends.
class Scope {
 public:
  Scope(const std::vector<Replica*>& replicas, const JoinOptions& options) {
    try {
      for (Replica* const replica : replicas) {
        replica->begin_join(options, replicas);
        joined_.push_back(replica);
      }
    } catch (...) {
      end();
      throw;
    }
  }

  ~Scope() { end(); }

  Scope(const Scope&) = delete;
  Scope& operator=(const Scope&) = delete;
  Scope(Scope&&) = delete;
  Scope& operator=(Scope&&) = delete;

 private:
  void end() {
    for (Replica* const replica : joined_) {
      replica->end_join();
    }
  }

  std::vector<Replica*> joined_;
};

}  // namespace

int run_joined(const std::vector<Replica*>& replicas,
               const JoinOptions& options,
               const std::function<void()>& loop) {
  const Scope scope(replicas, options);
  loop();
  // Stops at the first replica that no rank trains any more: all ranks then have finished.
  while (std::ranges::all_of(
      replicas, [](Replica* replica) { return replica->join_session()->shadow_pass(); })) {
  }
  std::vector<int> last_active;
  for (Replica* const replica : replicas) {
    last_active.push_back(replica->take_final_values());
  }
  return last_active.front();
}

JoinedStep::JoinedStep(Shadow shadow) : shadow_(std::move(shadow)) {}

std::optional<int> JoinedStep::announce() {
  return replica_ == nullptr ? std::nullopt : replica_->announce_step();
}

void JoinedStep::stop() {
  if (replica_ != nullptr) {
    replica_->drop_joined_step();
  }
}

JoinSession::JoinSession(Replica& replica,
                         const JoinOptions& options,
                         const std::vector<Replica*>& joined)
    : replica_(replica), options_(options), joined_(joined) {
  ProcessGroup& group = *replica.group();
  const JoinedStep* const step = replica.joined_step();
  if (replica.options().logical_ranks > 0) {
    throw group.refuse("DistributedDataParallel",
                       "with logical_ranks each step has all shards, so there is no join()");
  }
  if (replica.options().weigh_samples) {
    throw group.refuse("DistributedDataParallel",
                       "with weigh_samples there is no join(): a rank without batches calls "
                       "run_step(0, ...), until that returns false");
  }
  if (step && !step->has_shadow()) {
    throw group.refuse("DistributedDataParallel",
                       "an optimizer makes its steps in this model's backward passes, which ranks "
                       "without batches have none of; under join() leave overlap_with() out, and "
                       "call join_with()");
  }
  if (step && joined.size() > kMostJoined) {
    throw group.refuse("DistributedDataParallel",
                       "join() has " + std::to_string(joined.size()) +
                           " models; where an optimizer is tied to one of them there may be " +
                           std::to_string(kMostJoined));
  }
  replica.reducer().context().is_joined = true;
}

JoinSession::~JoinSession() {
  replica_.reducer().context().weights.factor = 1;
  replica_.reducer().context().is_joined = false;
}

PassPart JoinSession::announce(const PassPart& mine) {
  ProcessGroup& group = *replica_.group();
  constexpr unsigned kActive = 1;
  constexpr unsigned kSynchronized = 2;
  constexpr unsigned kTraining = 4;
  constexpr unsigned kThawed = 8;
  constexpr unsigned kStep = 16;
  constexpr unsigned kModelShift = 5;
  std::vector<std::uint8_t> parts(static_cast<std::size_t>(group.world_size()), 0);
  parts[static_cast<std::size_t>(group.rank())] = static_cast<std::uint8_t>(
      (mine.is_active ? kActive : 0) | (mine.is_synchronized ? kSynchronized : 0) |
      (mine.is_training ? kTraining : 0) | (mine.has_thawed ? kThawed : 0) |
      (mine.is_step ? kStep : 0) | (mine.model << kModelShift));
  group.all_reduce(
      as_buffer(std::span<std::uint8_t>(parts)),
      {.op = kMax, .timeout = replica_.options().timeout, .label = "join: ranks with a batch"});
  const auto first = std::ranges::find_if(parts, [](std::uint8_t part) { return part != 0; });
  if (first == parts.end()) {
    return {};
  }
  root_ = static_cast<int>(first - parts.begin());
  const auto done = std::ranges::find(parts, 0);
  if (options_.throw_on_early_termination && done != parts.end()) {
    throw Error(ErrorCode::kMismatch,
                "[rank " + std::to_string(group.rank()) + "] DistributedDataParallel: rank " +
                    std::to_string(done - parts.begin()) + " has no batches left, and rank " +
                    std::to_string(root_) + " has; join() is set to throw in this case");
  }
  const auto n_active =
      static_cast<double>(parts.size()) - static_cast<double>(std::ranges::count(parts, 0));
  replica_.reducer().context().weights.factor =
      options_.divide_by_initial_world_size ? 1 : static_cast<double>(parts.size()) / n_active;
  return {
      .is_active = true,
      .is_synchronized = (*first & kSynchronized) != 0,
      .is_training = (*first & kTraining) != 0,
      .has_thawed = std::ranges::any_of(parts, [](unsigned part) { return (part & kThawed) != 0; }),
      .is_step = (*first & kStep) != 0,
      .model = static_cast<std::size_t>(*first >> kModelShift)};
}

int JoinSession::announce_step() {
  const auto self = std::ranges::find(joined_, &replica_);
  announce({.is_active = true,
            .is_step = true,
            .model = static_cast<std::size_t>(self - joined_.begin())});
  return root_;
}

bool JoinSession::shadow_pass() {
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  PassPart part = announce({});
  while (part.is_step) {
    joined_.at(part.model)->shadow_step(root_);
    part = announce({});
  }
  if (part.is_active) {
    replica_.prepare_pass(part, root_);
    Reducer& reducer = replica_.reducer();
    reducer.timer().begin(begin);
    reducer.timer().add_exposed(std::chrono::steady_clock::now() - begin);
    if (part.is_synchronized) {
      reducer.shadow_pass();
    }
  }
  return part.is_active;
}

}  // namespace unisono::ddp
