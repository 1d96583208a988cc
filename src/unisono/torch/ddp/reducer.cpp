#include "unisono/torch/ddp/reducer.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <exception>
#include <string>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

namespace unisono::ddp {
namespace {

StepTimer::Time time_now() {
  return std::chrono::steady_clock::now();
}

std::int64_t gradient_bytes(const std::vector<NamedTensor>& parameters) {
  std::int64_t n_bytes = 0;
  for (const NamedTensor& parameter : parameters) {
    n_bytes += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
  return n_bytes;
}

}  // namespace

Reducer::Reducer(PassContext context)
    : context_(std::move(context)),
      features_(make_features(context_)),
      order_(context_.parameters.size()),
      hooks_(tensors_of(context_.parameters),
             [this](std::size_t parameter) { on_gradient(parameter); }) {
  int n_flags = 1;  // kGivenUp
  for (const auto& feature : features_) {
    n_flags += feature->n_flags();
  }
  UNISONO_CHECK(n_flags <= kFlagBits, "the features have more flags than a pass has room for");
  check(context_.parameters);
  context_.buckets = make_buckets(context_.parameters, context_.is_sparse, order_.present());
}

void Reducer::check(const std::vector<NamedTensor>& parameters) const {
  call(&PassFeature::check, parameters);
}

void Reducer::add(const std::vector<NamedTensor>& parameters, const std::vector<bool>& is_sparse) {
  UNISONO_CHECK(!progress_, "parameters are added in a backward pass");
  await_given_up_pass();
  check(parameters);
  std::vector<NamedTensor> all = context_.parameters;
  all.insert(all.end(), parameters.begin(), parameters.end());
  std::vector<bool> is_any_sparse = context_.is_sparse;
  is_any_sparse.insert(is_any_sparse.end(), is_sparse.begin(), is_sparse.end());
  GradientOrder order = order_;
  order.add(parameters.size());
  std::unique_ptr<BucketSet> buckets = make_buckets(all, is_any_sparse, order.present());

  // All steps that can fail are done. Buckets refer to the elements of `all`, which a move leaves
  // in place.
  context_.parameters = std::move(all);
  context_.is_sparse = std::move(is_any_sparse);
  order_ = std::move(order);
  context_.buckets = std::move(buckets);
  context_.is_used = {};
  hooks_.add(tensors_of(parameters));
}

void Reducer::before_forward() {
  await_given_up_pass();
  call(&PassFeature::before_forward);
  hooks_.follow();
  if (order_.agree(*context_.group, context_.options.timeout)) {
    // Existing gradients stay views of the old buckets until the next hook; a view keeps its
    // bucket's memory alive.
    context_.buckets = make_buckets(context_.parameters, context_.is_sparse, order_.present());
  }
}

std::unique_ptr<BucketSet> Reducer::make_buckets(const std::vector<NamedTensor>& parameters,
                                                 const std::vector<bool>& is_sparse,
                                                 const std::vector<std::size_t>& order) const {
  return std::make_unique<BucketSet>(
      *context_.group, parameters, is_sparse, order, context_.caps, context_.n_votes);
}

void Reducer::set_hook(CommHook hook) {
  constexpr const char* kCall = "DistributedDataParallel.register_comm_hook()";
  if (!context_.hook_refusal.empty()) {
    throw context_.group->refuse(kCall, context_.hook_refusal);
  }
  if (context_.hook || has_begun_) {
    throw context_.group->refuse(
        kCall,
        context_.hook ? "there is a hook already; a model has one"
                      : "a backward pass has been made; register a hook before the first");
  }
  context_.hook = std::move(hook);
  context_.has_comm_hook = true;
}

void Reducer::on_backward(bool is_synchronized) {
  if (!progress_) {
    begin_pass(is_synchronized, /*is_untouched=*/true);
  } else if (is_synchronized && !is_synchronized_) {
    synchronize_pass();
  }
}

void Reducer::begin_pass(bool is_synchronized, bool is_untouched) {
  if (!hooks_.find_reached()) {
    return;
  }
  call(&PassFeature::on_backward, is_synchronized, is_untouched);
  await_given_up_pass();
  has_begun_ = true;
  backward_begin_ = time_now();
  progress_.emplace(context_.buckets->bucket_of(), context_.buckets->size());
  context_.missing.clear();
  is_synchronized_ = false;
  const auto if_alive = [self = weak_from_this()](void (Reducer::*end)()) {
    return [self, end] {
      if (const std::shared_ptr<Reducer> alive = self.lock()) {
        ((*alive).*end)();
      }
    };
  };
  at_end_of_backward(if_alive(&Reducer::finish_pass), if_alive(&Reducer::give_up_pass));
  if (is_synchronized) {
    synchronize_pass();
  }
}

void Reducer::synchronize_pass() {
  call(&PassFeature::on_synchronize);
  is_synchronized_ = true;
  is_rest_launched_ = false;
  is_step_reduced_ = true;
  if (c10::GradMode::is_enabled()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(context_.group->rank()) +
                    "] DistributedDataParallel: backward() was called with create_graph, but "
                    "averages of gradients have no graph; take gradients to differentiate again "
                    "from torch::autograd::grad(), and call backward() without create_graph");
  }
  const c10::NoGradGuard no_grad;
  const std::optional<std::vector<bool>> reached = hooks_.find_reached();
  for (std::size_t i = 0; i < context_.parameters.size(); ++i) {
    if (progress_->is_ready(i)) {
      deposit(i);
    } else if (context_.options.find_unused_parameters && reached && !(*reached)[i]) {
      deposit(i);
      progress_->mark_absent(i);
    }
  }
  launch_full_buckets();
}

void Reducer::on_gradient(std::size_t parameter) {
  if (!progress_) {
    begin_pass(is_synchronized_by_default_, /*is_untouched=*/false);
  }
  if (!progress_->is_ready(parameter)) {
    progress_->mark_ready(parameter);
  } else if (is_synchronized_) {
    on_second_gradient(parameter);
  }
  if (is_synchronized_) {
    const c10::NoGradGuard no_grad;
    deposit(parameter);
    launch_full_buckets();
  }
}

// A second gradient is harmless if the parameter was marked as unused and its bucket has not been
// taken yet.
void Reducer::on_second_gradient(std::size_t parameter) {
  if (progress_->is_absent(parameter) && !progress_->is_taken(parameter)) {
    return;
  }
  const std::string& name = context_.parameters[parameter].name;
  throw Error(ErrorCode::kInvalidArgument,
              progress_->is_absent(parameter)
                  ? "parameter '" + name +
                        "' got a gradient, but is not part of the graph from the loss down; with "
                        "find_unused_parameters no parameter may be used only inside an activation "
                        "checkpoint"
                  : "parameter '" + name +
                        "' got a gradient twice in one backward pass; it may be used in one "
                        "activation checkpoint only, or in no_sync()");
}

void Reducer::deposit(std::size_t parameter) {
  const bool is_sparse = context_.is_sparse[parameter];
  if (!is_sparse) {
    context_.buckets->deposit(parameter);
  }
  const at::Tensor& gradient =
      is_sparse ? context_.parameters[parameter].tensor.grad() : context_.buckets->view(parameter);
  call(&PassFeature::adjust, parameter, gradient);
  call(&PassFeature::inspect, parameter, gradient);
}

void Reducer::inspect_local_gradients() {
  for (std::size_t i = 0; i < context_.parameters.size() && !is_step_reduced_; ++i) {
    call(&PassFeature::inspect, i, context_.parameters[i].tensor.grad());
  }
}

// Returns the words of all features, one behind the other; bit 0 is kGivenUp.
PassFlags Reducer::collect_flags() {
  PassFlags flags = 0;
  int shift = 1;
  for (const auto& feature : features_) {
    flags |= feature->flags() << shift;
    shift += feature->n_flags();
  }
  return flags;
}

void Reducer::launch(std::size_t bucket, PassFlags flags) {
  BucketSet& buckets = *context_.buckets;
  if (context_.weights.own > 1) {
    buckets.elements(bucket).mul_(context_.weights.own);
  }
  call(&PassFeature::before_launch, bucket);
  if (bucket + 1 == buckets.size()) {
    flags |= collect_flags();
  }
  try {
    buckets.launch(
        bucket,
        flags,
        context_.hook,
        {.op = context_.weights.is_summed ? kSum : kAvg, .timeout = context_.options.timeout});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kClosed) {
      wait_for_first();  // throws the error that may have closed the group
    }
    throw;
  }
}

void Reducer::launch_full_buckets() {
  while (const std::optional<std::size_t> bucket = progress_->take_full_bucket()) {
    launch(*bucket, 0);
  }
}

void Reducer::launch_rest(PassFlags flags, bool is_shadow) {
  if (std::exchange(is_rest_launched_, true)) {
    return;
  }
  while (const std::optional<std::size_t> bucket = progress_->take_bucket()) {
    launch(*bucket, flags);
  }
  const auto is_used = [&](std::size_t i) {
    return !is_shadow && (context_.parameters[i].tensor.grad().defined() ||
                          std::ranges::any_of(features_, [i](const auto& feature) {
                            return feature->has_gradient(i);
                          }));
  };
  call(&PassFeature::after_launch, is_used);
}

void Reducer::wait_for_first() const {
  explain(ErrorCode::kMismatch, context_.advice, [this] {
    explain_uneven_inputs([this] { context_.buckets->wait_for_first(); });
  });
}

void Reducer::wait_for_buckets() {
  const StepTimer::Time begin = time_now();
  explain(ErrorCode::kMismatch, context_.advice, [this] {
    explain_uneven_inputs([this] {
      context_.buckets->wait();
      call(&PassFeature::wait);
    });
  });
  timer_.add_exposed(time_now() - begin);
}

void Reducer::finish_pass() {
  timer_.add_backward(time_now() - backward_begin_);
  if (!is_synchronized_) {
    progress_.reset();
    return;
  }
  try {
    const c10::NoGradGuard no_grad;
    finish_synchronized_pass(/*is_empty=*/false);
  } catch (...) {
    give_up_pass();
    throw;
  }
  call(&PassFeature::after_backward);
}

void Reducer::finish_synchronized_pass(bool is_empty) {
  context_.missing = progress_->find_missing();
  for (const std::size_t parameter : context_.missing) {
    deposit(parameter);
    progress_->mark_absent(parameter);
  }
  launch_rest(0);
  wait_for_buckets();
  if ((context_.buckets->flags() & kGivenUp) != 0) {
    throw Error(ErrorCode::kMismatch,
                "[rank " + std::to_string(context_.group->rank()) +
                    "] DistributedDataParallel: another rank's backward pass ended with an "
                    "exception; this step's gradients are incomplete on every rank");
  }
  const std::vector<std::size_t> seen = is_empty ? order_.present() : progress_->order();
  progress_.reset();
  (void)end_pass({});
  order_.observe(seen);
}

// Returns whether the pass has ended well on all ranks.
bool Reducer::end_pass(PassResult result) {
  BucketSet& buckets = *context_.buckets;
  const PassFlags flags = buckets.flags() >> 1U;
  const GradientWeights& weights = context_.weights;
  if (weights.is_summed) {
    buckets.divide(weights.divisor);
  }
  if (result.takes_gradients) {
    if (weights.factor != 1) {
      buckets.multiply(weights.factor);
    }
    point_at_views();
  }
  ++context_.n_passes;
  timer_.end_step(time_now(), gradient_bytes(context_.parameters));
  int shift = 0;
  for (const auto& feature : features_) {
    const int n_flags = feature->n_flags();
    result.flags = (flags >> shift) & ((PassFlags{1} << n_flags) - 1);
    shift += n_flags;
    feature->end_pass(result);
    if (result.is_over) {
      return false;
    }
  }
  return true;
}

void Reducer::shadow_pass() {
  has_begun_ = true;
  is_rest_launched_ = false;
  progress_.emplace(context_.buckets->bucket_of(), context_.buckets->size());
  context_.missing.clear();
  const c10::NoGradGuard no_grad;
  if (has_averages_of_shadows_) {
    context_.drop_gradients();
  }
  context_.buckets->multiply(0);
  launch_rest(0, /*is_shadow=*/true);
  progress_.reset();
  wait_for_buckets();
  if ((context_.buckets->flags() & kGivenUp) == 0 &&
      end_pass({.is_shadow = true, .takes_gradients = has_averages_of_shadows_})) {
    order_.observe(order_.present());
  }
}

void Reducer::begin_empty_pass() {
  has_begun_ = true;
  is_synchronized_ = true;
  is_rest_launched_ = false;
  is_step_reduced_ = true;
  context_.missing.clear();
  progress_.emplace(context_.buckets->bucket_of(), context_.buckets->size());
}

void Reducer::make_empty_pass(const std::function<bool()>& goes_on) {
  begin_empty_pass();
  try {
    const c10::NoGradGuard no_grad;
    for (std::size_t i = 0; i < context_.parameters.size(); ++i) {
      deposit(i);
      progress_->mark_absent(i);
    }
    launch(*progress_->take_bucket(), 0);
    const StepTimer::Time begin = time_now();
    wait_for_first();
    timer_.add_exposed(time_now() - begin);
    if (goes_on()) {
      finish_synchronized_pass(/*is_empty=*/true);
    }
  } catch (...) {
    give_up_pass();
    throw;
  }
  progress_.reset();
}

// Sets gradients that only other ranks computed to the views of their averages.
void Reducer::point_at_views() {
  for (std::size_t i = 0; i < context_.parameters.size(); ++i) {
    at::Tensor& gradient = context_.parameters[i].tensor.mutable_grad();
    if (!context_.is_sparse[i] && !gradient.defined() && context_.uses(i)) {
      gradient = context_.buckets->view(i);
    }
  }
}

void Reducer::give_up_pass() noexcept {
  call(&PassFeature::give_up);
  context_.missing.clear();
  if (progress_ && is_synchronized_) {
    is_given_up_ = true;
    timer_.drop_step(time_now());
    try {
      launch_rest(kGivenUp);
    } catch (const std::exception&) {
      // The group is closed; the next operation throws the reason.
    }
  }
  progress_.reset();
}

void Reducer::give_up_step() {
  if (!is_step_reduced_) {
    begin_empty_pass();
    give_up_pass();
  }
}

void Reducer::await_given_up_pass() {
  if (std::exchange(is_given_up_, false)) {
    context_.buckets->wait();
    call(&PassFeature::wait);
  }
}

}  // namespace unisono::ddp
