// How a pass of the reducer ends: with the averages of all ranks, as a shadow, or given up.
#include <chrono>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/non_finite.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/ddp/pass_progress.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/uneven_inputs.h"
#include "unisono/torch/ddp/unreached_parameters.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

StepTimer::Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

void Reducer::finish_pass() {
  timer_.add_backward(now() - backward_begin_);
  if (!is_synchronized_) {
    progress_.reset();
    return;
  }
  try {
    const c10::NoGradGuard no_grad;
    finish_synchronized_pass(/*is_shadow=*/false);
  } catch (...) {
    give_up_pass();
    throw;
  }
  optimizer_watch_.after_backward();
}

void Reducer::finish_synchronized_pass(bool is_shadow) {
  const std::vector<std::size_t> missing = progress_->find_missing();
  for (const std::size_t parameter : missing) {
    deposit(parameter);
    progress_->mark_absent(parameter);
  }
  if (!options_.find_unused_parameters) {
    unreached_.note(parameters_, missing);
  }
  launch_rest(finite_.status());
  wait_for_sums();
  if (shards_) {
    buckets_->divide(shards_->n_shards());
    shards_->forget_sums();
  }
  if (weighted_) {
    buckets_->divide(weighted_->votes()->n_samples);
  }
  if (gradient_factor_ != 1) {
    buckets_->multiply(gradient_factor_);
  }
  if (buckets_->status() == PassStatus::kGivenUp) {
    throw Error(ErrorCode::kMismatch,
                "[rank " + std::to_string(group_->rank()) +
                    "] DistributedDataParallel: another rank's backward pass ended with an "
                    "exception; this step's gradients are incomplete on every rank");
  }
  ++n_passes_;
  timer_.end_step(now(), n_gradient_bytes_);
  if (buckets_->status() == PassStatus::kNonFinite) {
    drop_non_finite();
  } else {
    point_at_views();
    reduce_sparse(/*is_shadow=*/false);
  }
  if (buckets_->do_fingerprints_differ()) {
    drift_.report(*group_, options_.timeout);
  }
  order_.observe(is_shadow ? order_.present() : progress_->order());
  find_unreached();
  progress_.reset();
}

void Reducer::find_unreached() {
  if (buckets_->is_any_lacking()) {
    unreached_.exchange(*group_, n_passes_, options_.timeout);
  }
}

void Reducer::drop_gradients() {
  for (const NamedTensor& parameter : parameters_) {
    parameter.tensor.mutable_grad().reset();
  }
}

void Reducer::drop_non_finite() {
  drop_gradients();
  if (finite_.ends_passes()) {
    progress_.reset();
  }
  finite_.report(*group_, n_passes_, options_.timeout);
}

void Reducer::reduce_sparse(bool is_shadow) {
  SparseWeights weights{.divisor = static_cast<double>(group_->world_size()),
                        .factor = gradient_factor_};
  if (weighted_) {
    weights.own = static_cast<double>(weighted_->n_samples());
    weights.divisor = static_cast<double>(weighted_->votes()->n_samples);
  }
  sparse_.run(*group_, used_, weights, is_shadow, options_.timeout);
}

void Reducer::wait_for_sums() {
  const StepTimer::Time begin = now();
  explain(ErrorCode::kMismatch, advice_, [this] {
    explain_uneven_inputs([this] {
      buckets_->wait();
      used_.wait();
    });
  });
  if (weighted_) {
    weighted_->read(buckets_->votes());
  }
  timer_.add_exposed(now() - begin);
}

void Reducer::shadow_pass() {
  has_begun_ = true;
  progress_.emplace(buckets_->bucket_of(), buckets_->size());
  const c10::NoGradGuard no_grad;
  if (has_averages_of_shadows_) {
    drop_gradients();
  }
  buckets_->multiply(0);
  while (const std::optional<std::size_t> bucket = progress_->take_bucket()) {
    launch(*bucket, finite_.status());
  }
  used_.launch([](std::size_t) { return false; }, options_.timeout);
  progress_.reset();
  wait_for_sums();
  const PassStatus status = buckets_->status();
  if (status == PassStatus::kGivenUp) {
    return;
  }
  ++n_passes_;
  timer_.end_step(now(), n_gradient_bytes_);
  if (status == PassStatus::kNonFinite) {
    (void)describe_non_finite(*group_, "", options_.timeout);
  } else {
    if (has_averages_of_shadows_) {
      buckets_->multiply(gradient_factor_);
      point_at_views();
    }
    reduce_sparse(/*is_shadow=*/true);
  }
  order_.observe(order_.present());
  if (status == PassStatus::kGood || !finite_.ends_passes()) {
    find_unreached();
  }
}

// A gradient that only other ranks have is this rank's gradient too.
void Reducer::point_at_views() {
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!is_sparse(i) && !gradient.defined() && used_.has(i)) {
      gradient = buckets_->view(i);
    }
  }
}

void Reducer::give_up_pass() noexcept {
  finite_.forget();
  unreached_.forget();
  if (progress_ && is_synchronized_) {
    is_given_up_ = true;
    timer_.drop_step(now());
    try {
      launch_rest(PassStatus::kGivenUp);
    } catch (const std::exception&) {
      // The group is closed, and the next operation will say why.
    }
  }
  progress_.reset();
}

void Reducer::await_given_up_pass() {
  if (std::exchange(is_given_up_, false)) {
    buckets_->wait();
    used_.wait();
    if (weighted_) {
      weighted_->read(buckets_->votes());
    }
  }
}

}  // namespace unisono::ddp
