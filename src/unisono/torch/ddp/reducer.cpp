#include "unisono/torch/ddp/reducer.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/backward_pass.h"
#include "unisono/torch/ddp/bucket_set.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/ddp/sparse_gradients.h"
#include "unisono/torch/ddp/uneven_inputs.h"
#include "unisono/torch/ddp/wide_types.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

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
      finite_(options_.non_finite),
      drift_(parameters_, options_.drift),
      sparse_(parameters_, options_.is_sparse),
      used_(*group_, parameters_.size(), options_.find_unused_parameters),
      mistakes_(parameters_.front().tensor, "rank " + std::to_string(group_->rank())),
      optimizer_watch_(parameters_.front().tensor),
      order_(parameters_.size()),
      buckets_(make_buckets(parameters_, options_.is_sparse, order_.present())),
      hooks_(tensors_of(parameters_), [this](std::size_t parameter) { on_gradient(parameter); }) {
  check_types(parameters_);
  if (options_.n_shards > 0) {
    use_shards();
  }
  if (options_.weighs_samples) {
    weighted_.emplace(*group_);
  }
  for (const NamedTensor& parameter : parameters_) {
    n_gradient_bytes_ += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
}

void Reducer::check_types(const std::vector<NamedTensor>& parameters) const {
  if (options_.n_shards > 0) {
    ShardGradients::check_types(parameters);
  }
  if (options_.weighs_samples) {
    check_wide_types(parameters, "weigh_samples", "which hold sums over all samples");
  }
}

void Reducer::use_shards() {
  shards_.emplace(*group_, parameters_, options_.n_shards);
  hook_ = shards_->make_hook(group_);
}

void Reducer::add(const std::vector<NamedTensor>& parameters, const std::vector<bool>& is_sparse) {
  UNISONO_CHECK(!progress_, "parameters are added in a backward pass");
  await_given_up_pass();
  check_types(parameters);
  std::vector<NamedTensor> all = parameters_;
  all.insert(all.end(), parameters.begin(), parameters.end());
  std::vector<bool> is_any_sparse = options_.is_sparse;
  is_any_sparse.insert(is_any_sparse.end(), is_sparse.begin(), is_sparse.end());
  GradientOrder order = order_;
  order.add(parameters.size());
  std::unique_ptr<BucketSet> buckets = make_buckets(all, is_any_sparse, order.present());
  used_.resize(all.size());

  // What can fail has been done. Buckets refer to the elements of `all`, which a move leaves where
  // they are.
  parameters_ = std::move(all);
  options_.is_sparse = std::move(is_any_sparse);
  order_ = std::move(order);
  buckets_ = std::move(buckets);
  sparse_.add(is_sparse);
  hooks_.add(tensors_of(parameters));
  if (shards_) {
    use_shards();
  }
  for (const NamedTensor& parameter : parameters) {
    n_gradient_bytes_ += static_cast<std::int64_t>(parameter.tensor.nbytes());
  }
}

void Reducer::before_forward() {
  optimizer_watch_.before_forward();
  await_given_up_pass();
  unreached_.check();
  hooks_.follow();
  if (order_.agree(*group_, options_.timeout)) {
    // Gradients that are there stay views of the old buckets, which live as long, until the next
    // hook.
    buckets_ = make_buckets(parameters_, options_.is_sparse, order_.present());
  }
}

std::unique_ptr<BucketSet> Reducer::make_buckets(const std::vector<NamedTensor>& parameters,
                                                 const std::vector<bool>& is_sparse,
                                                 const std::vector<std::size_t>& order) const {
  return std::make_unique<BucketSet>(*group_,
                                     parameters,
                                     is_sparse,
                                     order,
                                     options_.caps,
                                     options_.weighs_samples ? group_->world_size() : 0);
}

void Reducer::set_hook(CommHook hook) {
  if (shards_) {
    throw group_->refuse("DistributedDataParallel.register_comm_hook()",
                         "with logical_ranks buckets are added in the canonical order only");
  }
  if (weighted_) {
    throw group_->refuse(
        "DistributedDataParallel.register_comm_hook()",
        "with weigh_samples buckets are weighted sums, which a hook would average");
  }
  if (hook_ || has_begun_) {
    throw group_->refuse("DistributedDataParallel.register_comm_hook()",
                         hook_ ? "there is a hook already; a model has one"
                               : "a backward pass has been made; register a hook before the first");
  }
  hook_ = std::move(hook);
  drift_.stop();  // it may leave ranks apart for a while
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
  optimizer_watch_.before_backward();
  if (shards_) {
    shards_->count_pass();
  } else if (weighted_) {
    weighted_->begin_pass();
  } else {
    mistakes_.on_pass(is_synchronized, is_untouched);
  }
  await_given_up_pass();
  has_begun_ = true;
  backward_begin_ = std::chrono::steady_clock::now();
  progress_.emplace(buckets_->bucket_of(), buckets_->size());
  is_synchronized_ = false;
  auto end = std::make_shared<PassEnd>(weak_from_this());
  at_end_of_backward([end = std::move(end)] { end->finish(); });
  if (is_synchronized) {
    synchronize_pass();
  }
}

void Reducer::synchronize_pass() {
  if (weighted_) {
    weighted_->synchronize();
  }
  is_synchronized_ = true;
  is_rest_launched_ = false;
  is_step_reduced_ = true;
  if (c10::GradMode::is_enabled()) {
    throw Error(ErrorCode::kInvalidArgument,
                "[rank " + std::to_string(group_->rank()) +
                    "] DistributedDataParallel: backward() was told to create a graph of the "
                    "gradients, but averages have none; take what is to be differentiated again "
                    "from torch::autograd::grad(), and call backward() without create_graph");
  }
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
    finite_.look_at(parameters_[parameter].name, values_of(parameters_[parameter].tensor.grad()));
    return;
  }
  buckets_->deposit(parameter);
  if (shards_) {
    shards_->add_earlier(parameter, buckets_->view(parameter));
  }
  finite_.look_at(parameters_[parameter].name, buckets_->view(parameter));
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

void Reducer::launch(std::size_t bucket, PassStatus status) {
  const bool is_last = bucket + 1 == buckets_->size();
  if (weighted_) {
    if (weighted_->n_samples() > 1) {
      buckets_->elements(bucket).mul_(weighted_->n_samples());
    }
    if (bucket == 0) {
      weighted_->vote(buckets_->votes());
    }
  }
  const PassMarks marks = is_last ? PassMarks{.status = status,
                                              .fingerprint = drift_.take_fingerprint(),
                                              .lacks_gradients = unreached_.is_any()}
                                  : PassMarks();
  try {
    buckets_->launch(bucket,
                     marks,
                     hook_,
                     {.op = shards_ || weighted_ ? kSum : kAvg, .timeout = options_.timeout});
  } catch (const Error& error) {
    if (error.code() == ErrorCode::kClosed) {
      wait_for_first();  // whose error may be the one that has closed the group
    }
    throw;
  }
}

void Reducer::wait_for_first() const {
  explain(ErrorCode::kMismatch, advice_, [this] {
    explain_uneven_inputs([this] { buckets_->wait_for_first(); });
  });
}

void Reducer::launch_full_buckets() {
  while (const std::optional<std::size_t> bucket = progress_->take_full_bucket()) {
    launch(*bucket, finite_.status());
  }
}

void Reducer::launch_rest(PassStatus status) {
  if (std::exchange(is_rest_launched_, true)) {
    return;
  }
  while (const std::optional<std::size_t> bucket = progress_->take_bucket()) {
    launch(*bucket, status);
  }
  used_.launch(
      [this](std::size_t i) {
        return parameters_[i].tensor.grad().defined() || (shards_ && shards_->has(i));
      },
      options_.timeout);
}

}  // namespace unisono::ddp
