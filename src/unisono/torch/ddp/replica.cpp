#include "unisono/torch/ddp/replica.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/report/step_report.h"
#include "unisono/report/step_timer.h"
#include "unisono/torch/ddp/backward_pass.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/check_devices.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/joined_step.h"
#include "unisono/torch/ddp/logical_ranks/logical_step.h"
#include "unisono/torch/ddp/logical_ranks/shard_range.h"
#include "unisono/torch/ddp/model_properties.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/uneven_inputs.h"
#include "unisono/torch/ddp/wrapped_tensors.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/coalesced_broadcast.h"
#include "unisono/torch/tensor/consistency.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {
namespace {

[[noreturn]] void reject(const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, "DistributedDataParallel: " + message);
}

std::int64_t cap_bytes(const char* name, double mebibytes) {
  constexpr double kMaxMebibytes = 1 << 20;
  if (!(mebibytes > 0) || mebibytes > kMaxMebibytes) {
    std::ostringstream text;
    text << name << " is " << mebibytes << "; it must be greater than 0, and at most "
         << kMaxMebibytes;
    reject(text.str());
  }
  return std::max<std::int64_t>(1, std::llround(mebibytes * (1 << 20)));
}

ReducerOptions reducer_options(const DistributedDataParallelOptions& options) {
  return {.caps = {.first_bytes = cap_bytes("first_bucket_cap_mb", options.first_bucket_cap_mb),
                   .bytes = cap_bytes("bucket_cap_mb", options.bucket_cap_mb)},
          .find_unused_parameters = options.find_unused_parameters,
          .timeout = options.timeout,
          .non_finite = options.non_finite_gradients,
          .n_shards = options.logical_ranks,
          .weighs_samples = options.weigh_samples,
          .drift = options.parameter_drift};
}

void check_kind_of_steps(const ProcessGroup& group, const DistributedDataParallelOptions& options) {
  const int logical_ranks = options.logical_ranks;
  if (logical_ranks < 0 || (logical_ranks > 0 && logical_ranks < group.world_size())) {
    reject("logical_ranks is " + std::to_string(logical_ranks) + ", but the group has " +
           std::to_string(group.world_size()) +
           " ranks; each needs a shard, so there must be at least as many (or 0: none)");
  }
  if (logical_ranks > 0 && options.weigh_samples) {
    reject("logical_ranks and weigh_samples are both set; the mean over shards has no weights");
  }
}

std::vector<NamedTensor> with_gradient(const std::vector<NamedTensor>& parameters) {
  std::vector<NamedTensor> result;
  std::ranges::copy_if(parameters, std::back_inserter(result), [](const NamedTensor& parameter) {
    return parameter.tensor.requires_grad();
  });
  return result;
}

}  // namespace

Replica::Replica(std::shared_ptr<ProcessGroup> group,
                 const std::vector<NamedTensor>& parameters,
                 const std::vector<NamedTensor>& buffers,
                 const std::vector<at::Tensor>& sparse,
                 const DistributedDataParallelOptions& options)
    : group_(std::move(group)),
      options_(options),
      buffers_(buffers, "buffers"),
      wrapped_(parameters, buffers),
      sparse_(sparse) {
  if (group_ == nullptr) {
    reject("the process group is null");
  }
  check_kind_of_steps(*group_, options_);
  check_devices(options_.device_ids, options_.output_device, parameters);
  ReducerOptions for_reducer = reducer_options(options_);
  check_agreement(*group_,
                  properties_of(parameters, buffers, sparse, options_),
                  "DistributedDataParallel: the ranks' modules differ",
                  options_.timeout);
  std::vector<NamedTensor> trained = with_gradient(parameters);
  if (trained.empty()) {
    reject("the module has no parameter that requires a gradient; it needs no wrapper");
  }
  for_reducer.is_sparse = find_sparse(trained, sparse, options_.logical_ranks);
  CoalescedBroadcast(parameters, "parameters").run(*group_, options_.timeout);
  buffers_.run(*group_, options_.timeout);
  reducer_ = std::make_shared<Reducer>(group_, std::move(trained), for_reducer);
  reducer_->set_advice(advice_on_frozen());
  if (options_.logical_ranks > 0) {
    logical_ = std::make_unique<LogicalStep>(group_,
                                             buffers,
                                             LogicalStepOptions{.n_shards = options_.logical_ranks,
                                                                .seed = options_.shard_seed,
                                                                .buffers = options_.shard_buffers,
                                                                .timeout = options_.timeout});
  }
}

Replica::~Replica() {
  if (joined_step_) {
    joined_step_->set_model(nullptr);
  }
}

void Replica::check_parameters(const std::vector<at::Tensor>& parameters,
                               const std::function<std::vector<NamedTensor>()>& named) const {
  if (c10::GradMode::is_enabled() && !wrapped_.are_all_of(parameters)) {
    refuse(wrapped_.find_replacement(named()));
  }
}

// The other ranks, which may wait for this one in their backward pass, learn of it.
void Replica::refuse(const std::optional<std::string>& change) const {
  if (change) {
    throw group_->refuse(
        "DistributedDataParallel",
        *change + "; change a module before it is wrapped, or wrap it anew, on every rank");
  }
}

void Replica::before_forward(bool is_training) {
  if (is_in_backward()) {
    return;  // an activation checkpoint repeats its part of the forward pass
  }
  const bool has_gradients = c10::GradMode::is_enabled();
  if (has_gradients) {
    refuse(wrapped_.find_conversion());
    refuse_thaw_within_step();
  }
  Part part{.is_active = true,
            .is_synchronized = is_synchronized_,
            .is_training = is_training,
            .has_thawed = has_gradients && wrapped_.has_thawed()};
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  if (options_.weigh_samples) {
    before_weighted_forward(part);
  } else if (!join_) {
    explain_uneven_inputs([&] { prepare_pass(part, 0); });
  } else if (has_gradients) {
    part.has_thawed = announce(part).has_thawed;
    prepare_pass(part, join_->root);
  }
  if (has_gradients) {
    forward_begin_ = std::chrono::steady_clock::now();
    reducer_->timer().begin(begin);
    reducer_->timer().add_exposed(*forward_begin_ - begin);
  }
}

void Replica::prepare_pass(const Part& part, int root) {
  if (part.is_synchronized && c10::GradMode::is_enabled()) {
    take_in_thawed(part.has_thawed && !logical_);
    reducer_->before_forward();
  }
  const bool is_shared = options_.broadcast_buffers && !logical_;
  if (part.is_synchronized && is_shared && may_buffers_differ_) {
    explain(ErrorCode::kMismatch, advice_on_frozen(), [&] {
      buffers_.run(*group_, options_.timeout, root);
    });
    may_buffers_differ_ = false;
  }
  may_buffers_differ_ = may_buffers_differ_ || part.is_training;
}

LogicalStep& Replica::logical() const {
  if (!logical_) {
    throw group_->refuse("DistributedDataParallel", "the option logical_ranks is not set");
  }
  return *logical_;
}

ShardRange Replica::shards() const {
  return logical().shards();
}

std::int64_t Replica::shard_step() const {
  return logical().step();
}

void Replica::set_shard_step(std::int64_t step) {
  logical().set_step(step);
}

void Replica::run_shards(const std::function<void(int)>& run_shard) {
  LogicalStep& step = logical();
  take_in_thawed(wrapped_.has_thawed());
  is_in_step_ = true;
  try {
    step.run(*reducer_, [this](bool is_on) { set_synchronized(is_on); }, run_shard);
  } catch (...) {
    is_in_step_ = false;
    throw;
  }
  is_in_step_ = false;
}

void Replica::after_forward(std::span<at::Tensor* const> outputs) {
  if (const auto begin = std::exchange(forward_begin_, std::nullopt)) {
    reducer_->timer().add_forward(std::chrono::steady_clock::now() - *begin);
  }
  if (!c10::GradMode::is_enabled()) {
    return;
  }
  for (at::Tensor* const output : outputs) {
    attach_backward_signal(*output,
                           [reducer = std::weak_ptr(reducer_), is_synchronized = is_synchronized_] {
                             if (const std::shared_ptr<Reducer> alive = reducer.lock()) {
                               alive->on_backward(is_synchronized);
                             }
                           });
  }
}

void Replica::set_synchronized(bool is_synchronized) {
  is_synchronized_ = is_synchronized;
  reducer_->set_synchronized(is_synchronized);
}

std::size_t Replica::n_buckets() const {
  return reducer_->n_buckets();
}

std::int64_t Replica::n_skipped() const {
  return reducer_->n_skipped();
}

void Replica::set_hook(CommHook hook) {
  if (!hook) {
    reject("the communication hook is empty");
  }
  reducer_->set_hook(std::move(hook));
}

void Replica::check_consistent() const {
  unisono::check_consistent(
      *group_, wrapped_.parameters(), "DistributedDataParallel", options_.timeout);
}

StepReport Replica::report() const {
  return gather_step_report(*group_, reducer_->timer(), options_.timeout);
}

const StepTimes& Replica::last_step() const {
  return reducer_->timer().last_step();
}

}  // namespace unisono::ddp
