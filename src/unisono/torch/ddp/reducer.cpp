#include "unisono/torch/ddp/reducer.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/backward_pass.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/non_finite.h"
#include "unisono/torch/ddp/parameter_drift.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/ddp/pass_progress.h"
#include "unisono/torch/ddp/sparse_gradients.h"
#include "unisono/torch/ddp/uneven_inputs.h"
#include "unisono/torch/tensor/consistency.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

std::string join_names(const std::vector<NamedTensor>& parameters,
                       const std::vector<std::size_t>& which) {
  std::string names;
  for (const std::size_t parameter : which) {
    names += (names.empty() ? "'" : ", '") + parameters[parameter].name + "'";
  }
  return names;
}

StepTimer::Time now() {
  return std::chrono::steady_clock::now();
}

}  // namespace

/// Lives as long as the backward pass that holds its callback: dies without finish() when the pass
/// ended with an exception.
class Reducer::PassEnd {
 public:
  explicit PassEnd(std::weak_ptr<Reducer> reducer) : reducer_(std::move(reducer)) {}

  ~PassEnd() {
    if (const std::shared_ptr<Reducer> reducer = reducer_.lock()) {
      reducer->give_up_pass();
    }
  }

  PassEnd(const PassEnd&) = delete;
  PassEnd& operator=(const PassEnd&) = delete;
  PassEnd(PassEnd&&) = delete;
  PassEnd& operator=(PassEnd&&) = delete;

  void finish() {
    if (const std::shared_ptr<Reducer> reducer = std::exchange(reducer_, {}).lock()) {
      reducer->finish_pass();
    }
  }

 private:
  std::weak_ptr<Reducer> reducer_;
};

Reducer::Reducer(std::shared_ptr<ProcessGroup> group,
                 std::vector<NamedTensor> parameters,
                 const ReducerOptions& options)
    : group_(std::move(group)),
      parameters_(std::move(parameters)),
      options_(options),
      compares_parameters_(options_.drift != ParameterDrift::kIgnore),
      samples_(parameters_),
      local_steps_(parameters_.front().tensor, "rank " + std::to_string(group_->rank())),
      order_(reverse_order(parameters_.size())),
      buckets_(std::make_unique<BucketSet>(
          *group_, parameters_, options_.is_sparse, order_, options_.caps)),
      hooks_(tensors_of(parameters_), [this](std::size_t parameter) { on_gradient(parameter); }) {
  if (options_.n_shards > 0) {
    shards_.emplace(*group_, parameters_, options_.n_shards);
    hook_ = shards_->make_hook(group_);
  }
  if (options_.find_unused_parameters) {
    used_ = group_->allocate(static_cast<std::int64_t>(parameters_.size()), DType::kUInt8);
  }
  for (const NamedTensor& parameter : parameters_) {
    n_gradient_bytes_ += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
}

void Reducer::before_forward() {
  await_given_up_pass();
  if (!unreached_names_.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(group_->rank()) +
                    "] DistributedDataParallel: backward computed no gradient for " +
                    unreached_names_ +
                    "; use these parameters (and every output of forward) in the loss, or set the "
                    "option find_unused_parameters");
  }
  hooks_.follow();
  if (!seen_order_.empty()) {
    rebuild_buckets();
  }
}

void Reducer::set_hook(CommHook hook) {
  if (shards_) {
    throw group_->refuse("DistributedDataParallel.register_comm_hook()",
                         "with logical_ranks buckets are added in the canonical order only");
  }
  if (hook_ || has_begun_) {
    throw group_->refuse("DistributedDataParallel.register_comm_hook()",
                         hook_ ? "there is a hook already; a model has one"
                               : "a backward pass has been made; register a hook before the first");
  }
  hook_ = std::move(hook);
  compares_parameters_ = false;  // it may leave ranks apart for a while
}

void Reducer::on_backward(bool is_synchronized) {
  if (!progress_) {
    begin_pass(is_synchronized);
  } else if (is_synchronized && !is_synchronized_) {
    synchronize_pass();
  }
}

void Reducer::begin_pass(bool is_synchronized) {
  if (!hooks_.find_reached()) {
    return;
  }
  if (shards_) {
    shards_->count_pass();
  } else {
    local_steps_.on_pass(is_synchronized);
  }
  await_given_up_pass();
  has_begun_ = true;
  backward_begin_ = now();
  progress_.emplace(buckets_->bucket_of(), buckets_->size());
  is_synchronized_ = false;
  auto end = std::make_shared<PassEnd>(weak_from_this());
  at_end_of_backward([end = std::move(end)] { end->finish(); });
  if (is_synchronized) {
    synchronize_pass();
  }
}

void Reducer::synchronize_pass() {
  is_synchronized_ = true;
  is_rest_launched_ = false;
  is_step_reduced_ = true;
  const c10::NoGradGuard no_grad;
  const std::optional<std::vector<bool>> reached = hooks_.find_reached();
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool is_absent = options_.find_unused_parameters && reached && !(*reached)[i];
    if (progress_->is_ready(i)) {
      deposit(i);
    } else if (is_absent) {
      deposit(i);
      progress_->mark_absent(i);
    }
  }
  launch_full_buckets();
}

void Reducer::deposit(std::size_t parameter) {
  if (is_sparse(parameter)) {
    check_sparse_gradient(parameters_[parameter]);
    check_finite(parameter, values_of(parameters_[parameter].tensor.grad()));
    return;
  }
  buckets_->deposit(parameter);
  if (shards_) {
    shards_->add_earlier(parameter, buckets_->view(parameter));
  }
  check_finite(parameter, buckets_->view(parameter));
}

void Reducer::check_finite(std::size_t parameter, const at::Tensor& gradient) {
  const bool is_checked = options_.non_finite != NonFiniteGradients::kAllow;
  if (is_checked && non_finite_.empty() && gradient.defined() &&
      !is_finite(is_sparse(parameter) ? gradient.contiguous() : gradient)) {
    non_finite_ = parameters_[parameter].name;
  }
}

void Reducer::on_gradient(std::size_t parameter) {
  if (!progress_) {
    begin_pass(is_synchronized_by_default_);
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

// Harmless where the parameter was only believed to be unused and its bucket still waits.
void Reducer::on_second_gradient(std::size_t parameter) {
  if (progress_->is_absent(parameter) && !progress_->is_taken(parameter)) {
    return;
  }
  const std::string& name = parameters_[parameter].name;
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

PassStatus Reducer::pass_status() const {
  return non_finite_.empty() ? PassStatus::kGood : PassStatus::kNonFinite;
}

// Parameters are looked at as late as in the backward pass, where they are what the pass was made
// with, and the same part of them on every rank.
PassMarks Reducer::marks_of(PassStatus status) {
  PassMarks marks{.status = status};
  if (compares_parameters_ && !is_comparison_paused_) {
    marks.fingerprint = samples_.take();
  } else {
    samples_.skip();
  }
  return marks;
}

void Reducer::launch(std::size_t bucket, PassStatus status) {
  const bool is_last = bucket + 1 == buckets_->size();
  buckets_->launch(bucket,
                   is_last ? marks_of(status) : PassMarks(),
                   hook_,
                   {.op = shards_ ? kSum : kAvg, .timeout = options_.timeout});
}

void Reducer::launch_full_buckets() {
  while (const std::optional<std::size_t> bucket = progress_->take_full_bucket()) {
    launch(*bucket, pass_status());
  }
}

void Reducer::launch_rest(PassStatus status) {
  if (std::exchange(is_rest_launched_, true)) {
    return;
  }
  while (const std::optional<std::size_t> bucket = progress_->take_bucket()) {
    launch(*bucket, status);
  }
  if (options_.find_unused_parameters) {
    launch_used();
  }
}

void Reducer::launch_used() {
  auto* const used = static_cast<std::uint8_t*>(used_.data);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    const bool is_used = parameters_[i].tensor.grad().defined() || (shards_ && shards_->has(i));
    used[i] = is_used ? 1 : 0;
  }
  reduce_used();
}

void Reducer::reduce_used() {
  used_work_ = group_->all_reduce_async(
      used_, {.op = kMax, .timeout = options_.timeout, .label = "use of parameters"});
}

void Reducer::finish_pass() {
  timer_.add_backward(now() - backward_begin_);
  if (!is_synchronized_) {
    progress_.reset();
    return;
  }
  try {
    const c10::NoGradGuard no_grad;
    finish_synchronized_pass();
  } catch (...) {
    give_up_pass();
    throw;
  }
}

void Reducer::finish_synchronized_pass() {
  const std::vector<std::size_t> missing = progress_->find_missing();
  for (const std::size_t parameter : missing) {
    deposit(parameter);
    progress_->mark_absent(parameter);
  }
  launch_rest(pass_status());
  wait_for_sums();
  if (shards_) {
    buckets_->divide(shards_->n_shards());
    shards_->forget_sums();
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
    drop_gradients();
  } else {
    point_at_views();
    reduce_sparse(/*is_shadow=*/false);
  }
  if (buckets_->do_fingerprints_differ()) {
    report_drift();
  }
  if (!is_rebuilt_) {
    seen_order_ = progress_->order();
  }
  if (!options_.find_unused_parameters) {
    unreached_names_ = join_names(parameters_, missing);
  }
  progress_.reset();
}

// Each rank's gradients of the same parameters, a rank without a batch with none.
void Reducer::reduce_sparse(bool is_shadow) {
  const auto* const used = static_cast<const std::uint8_t*>(used_.data);
  std::vector<NamedTensor> parameters;
  std::vector<at::Tensor> gradients;
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    if (is_sparse(i) && (used == nullptr || used[i] != 0)) {
      parameters.push_back(parameters_[i]);
      gradients.push_back(is_shadow ? at::Tensor() : parameters_[i].tensor.grad());
    }
  }
  if (parameters.empty()) {
    return;
  }
  std::vector<at::Tensor> means;
  explain_uneven_inputs(
      [&] { means = average_sparse(*group_, parameters, gradients, options_.timeout); });
  for (std::size_t i = 0; i < parameters.size() && !is_shadow; ++i) {
    if (gradient_factor_ != 1) {
      means[i].mul_(gradient_factor_);
    }
    parameters[i].tensor.mutable_grad() = means[i];
  }
}

// All ranks have seen that two have other parameters. They are compared once in full, to be named.
void Reducer::report_drift() {
  try {
    check_consistent(*group_,
                     parameters_,
                     "DistributedDataParallel: parameters are no longer the same on all ranks",
                     options_.timeout);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kMismatch || options_.drift == ParameterDrift::kThrow) {
      throw;
    }
    compares_parameters_ = false;
    if (group_->rank() == 0) {
      Logger("rank 0").warning(
          std::string(error.what()) +
          "; gradients are averaged, but each rank applies them to a model of its own. Load a "
          "state on every rank, or before the module is wrapped, and make the same steps on every "
          "rank");
    }
  }
}

// All ranks have seen that one has an infinity or NaN.
void Reducer::drop_gradients() {
  const std::string where =
      describe_non_finite(*group_, std::exchange(non_finite_, {}), options_.timeout);
  for (const NamedTensor& parameter : parameters_) {
    parameter.tensor.mutable_grad().reset();
  }
  const std::string message = "DistributedDataParallel: gradients of pass " +
                              std::to_string(n_passes_) + " have an infinity or NaN: " + where;
  if (options_.non_finite == NonFiniteGradients::kThrow) {
    progress_.reset();
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(group_->rank()) + "] " + message);
  }
  ++n_skipped_;
  if (group_->rank() == 0) {
    Logger("rank 0").warning(message + "; the step is left out");
  }
}

void Reducer::wait_for_sums() {
  const StepTimer::Time begin = now();
  explain_uneven_inputs([this] {
    buckets_->wait();
    used_work_.wait();
  });
  timer_.add_exposed(now() - begin);
}

void Reducer::shadow_pass() {
  has_begun_ = true;
  progress_.emplace(buckets_->bucket_of(), buckets_->size());
  const c10::NoGradGuard no_grad;
  buckets_->multiply(0);
  while (const std::optional<std::size_t> bucket = progress_->take_bucket()) {
    launch(*bucket, pass_status());
  }
  if (options_.find_unused_parameters) {
    std::memset(used_.data, 0, static_cast<std::size_t>(used_.n_bytes()));
    reduce_used();
  }
  progress_.reset();
  wait_for_sums();
  if (buckets_->status() != PassStatus::kGivenUp) {
    timer_.end_step(now(), n_gradient_bytes_);
  }
  if (buckets_->status() == PassStatus::kNonFinite) {
    (void)describe_non_finite(*group_, "", options_.timeout);
  } else if (buckets_->status() == PassStatus::kGood) {
    reduce_sparse(/*is_shadow=*/true);
  }
  if (!is_rebuilt_ && buckets_->status() != PassStatus::kGivenUp) {
    seen_order_ = order_;
  }
}

// A gradient that only other ranks have is this rank's gradient too.
void Reducer::point_at_views() {
  const auto* const used = static_cast<const std::uint8_t*>(used_.data);
  for (std::size_t i = 0; i < parameters_.size(); ++i) {
    at::Tensor& gradient = parameters_[i].tensor.mutable_grad();
    if (!is_sparse(i) && !gradient.defined() && (used == nullptr || used[i] != 0)) {
      gradient = buckets_->view(i);
    }
  }
}

void Reducer::begin_shard(int shard) {
  is_step_reduced_ = false;
  shards_->begin_shard(shard);
}

void Reducer::end_shard() {
  for (std::size_t i = 0; i < parameters_.size() && !is_step_reduced_; ++i) {
    check_finite(i, parameters_[i].tensor.grad());
  }
  shards_->end_shard();
}

void Reducer::give_up_shards() {
  if (!is_step_reduced_) {
    progress_.emplace(buckets_->bucket_of(), buckets_->size());
    is_synchronized_ = true;
    is_rest_launched_ = false;
    give_up_pass();
  }
  shards_->give_up();
}

void Reducer::give_up_pass() noexcept {
  non_finite_.clear();
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
    used_work_.wait();
  }
}

void Reducer::rebuild_buckets() {
  std::vector<std::int64_t> numbers(seen_order_.begin(), seen_order_.end());
  group_->broadcast(as_buffer(std::span(numbers)),
                    {.timeout = options_.timeout, .label = "order of gradients"});
  seen_order_.clear();
  is_rebuilt_ = true;
  std::vector<std::size_t> order(numbers.begin(), numbers.end());
  if (order == order_) {
    return;
  }
  // Gradients that are there stay views of the old buckets, which live as long, until the next
  // hook.
  buckets_ =
      std::make_unique<BucketSet>(*group_, parameters_, options_.is_sparse, order, options_.caps);
  order_ = std::move(order);
}

}  // namespace unisono::ddp
