// Steps of a reducer that have more than one pass, or passes that a rank has no part in.
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <c10/core/GradMode.h>

#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/sample_votes.h"

namespace unisono::ddp {

void Reducer::begin_shard(int shard) {
  is_step_reduced_ = false;
  shards_->begin_shard(shard);
}

void Reducer::end_shard() {
  for (std::size_t i = 0; i < parameters_.size() && !is_step_reduced_; ++i) {
    finite_.look_at(parameters_[i].name, parameters_[i].tensor.grad());
  }
  shards_->end_shard();
}

void Reducer::begin_step(std::int64_t n_samples) {
  is_step_reduced_ = false;
  drop_gradients();
  weighted_->begin(n_samples);
}

void Reducer::begin_shadow() {
  has_begun_ = true;
  is_synchronized_ = true;
  is_rest_launched_ = false;
  is_step_reduced_ = true;
  progress_.emplace(buckets_->bucket_of(), buckets_->size());
}

void Reducer::shadow_step() {
  begin_shadow();
  try {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      deposit(i);
      progress_->mark_absent(i);
    }
    launch(*progress_->take_bucket(), PassStatus::kGood);
    const StepTimer::Time begin = std::chrono::steady_clock::now();
    wait_for_first();
    timer_.add_exposed(std::chrono::steady_clock::now() - begin);
    weighted_->read(buckets_->votes());
    if (weighted_->votes()->n_samples > 0) {
      finish_synchronized_pass(/*is_shadow=*/true);
    }
  } catch (...) {
    give_up_pass();
    throw;
  }
  progress_.reset();
  weighted_->leave();
}

const std::optional<SampleVotes>& Reducer::votes() {
  await_given_up_pass();
  return weighted_->votes();
}

void Reducer::give_up_step() {
  if (!is_step_reduced_) {
    begin_shadow();
    give_up_pass();
  }
  if (shards_) {
    shards_->give_up();
  } else {
    weighted_->leave();
  }
}

}  // namespace unisono::ddp
