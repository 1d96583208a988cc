// Steps of a replica whose gradients are weighted by the ranks' samples.
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/comm/process_group.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/ddp/sample_votes.h"
#include "unisono/torch/ddp/uneven_inputs.h"

namespace unisono::ddp {

// What all ranks know of the last step, also of one that was given up.
void Replica::take_votes() {
  const std::optional<SampleVotes>& votes = reducer_->votes();
  if (votes && votes->n_samples > 0 && !std::exchange(are_votes_taken_, true)) {
    root_ = votes->root;
    may_buffers_differ_ = may_buffers_differ_ || votes->have_changed_buffers;
  }
}

// In a step there are no operations: ranks without samples make none of its forward passes.
void Replica::before_weighted_forward(const Part& part) {
  if (is_in_step_) {
    if (part.is_training) {
      reducer_->note_changed_buffers();
    }
    return;
  }
  if (c10::GradMode::is_enabled()) {
    throw group_->refuse(
        "DistributedDataParallel",
        "with weigh_samples forward passes that have gradients are made in run_step() only");
  }
  take_votes();
  prepare_pass(part, root_);
}

void Replica::check_step(std::int64_t n_samples) const {
  constexpr const char* kCall = "DistributedDataParallel.run_step()";
  if (!options_.weigh_samples) {
    throw group_->refuse(kCall, "the option weigh_samples is not set");
  }
  if (is_in_step_) {
    throw group_->refuse(kCall, "it is called within run_step()");
  }
  if (!c10::GradMode::is_enabled()) {
    throw group_->refuse(kCall, "gradients are off (torch::NoGradGuard); a step needs them");
  }
  if (n_samples < 0 || n_samples > kMostSamples) {
    throw group_->refuse(kCall,
                         "n_samples is " + std::to_string(n_samples) +
                             "; a rank has 0 (it has no data left) to " +
                             std::to_string(kMostSamples) + " samples in a step");
  }
}

bool Replica::run_step(std::int64_t n_samples, const std::function<void()>& run_passes) {
  check_step(n_samples);
  refuse(wrapped_.find_conversion());
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  take_votes();
  explain_uneven_inputs([&] {
    prepare_pass({.is_active = true, .is_synchronized = true, .has_thawed = wrapped_.has_thawed()},
                 root_);
  });
  reducer_->timer().begin(begin);
  reducer_->timer().add_exposed(std::chrono::steady_clock::now() - begin);
  reducer_->begin_step(n_samples);
  are_votes_taken_ = false;
  if (n_samples == 0) {
    reducer_->shadow_step();
  } else {
    run_own_passes(run_passes);
  }
  take_votes();
  return reducer_->votes()->n_samples > 0;
}

void Replica::run_own_passes(const std::function<void()>& run_passes) {
  is_in_step_ = true;
  try {
    run_passes();
    reducer_->end_step();
  } catch (...) {
    is_in_step_ = false;
    reducer_->give_up_step();
    throw;
  }
  is_in_step_ = false;
}

}  // namespace unisono::ddp
