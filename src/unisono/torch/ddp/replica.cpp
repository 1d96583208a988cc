#include "unisono/torch/ddp/replica.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <sstream>
#include <utility>

#include <c10/core/GradMode.h>

#include "unisono/base/error.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/features/finite_check.h"
#include "unisono/torch/ddp/features/unfreezing.h"
#include "unisono/torch/ddp/features/weighted_samples.h"
#include "unisono/torch/ddp/gradient_hooks.h"
#include "unisono/torch/ddp/join.h"
#include "unisono/torch/ddp/logical_ranks/logical_ranks.h"
#include "unisono/torch/ddp/model_check.h"
#include "unisono/torch/ddp/pass_feature.h"
#include "unisono/torch/ddp/reducer.h"
#include "unisono/torch/ddp/wrapped_tensors.h"
#include "unisono/torch/tensor/agreement.h"
#include "unisono/torch/tensor/hash.h"

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

BucketCaps bucket_caps(const DistributedDataParallelOptions& options) {
  return {.first_bytes = cap_bytes("first_bucket_cap_mb", options.first_bucket_cap_mb),
          .bytes = cap_bytes("bucket_cap_mb", options.bucket_cap_mb)};
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
      wrapped_(std::make_unique<WrappedTensors>(parameters, buffers)),
      has_sparse_(!sparse.empty()) {
  if (group_ == nullptr) {
    reject("the process group is null");
  }
  check_kind_of_steps(*group_, options_);
  check_devices(options_.device_ids, options_.output_device, parameters);
  const BucketCaps caps = bucket_caps(options_);
  check_agreement(*group_,
                  properties_of(parameters, buffers, sparse, options_),
                  "DistributedDataParallel: the ranks' modules differ",
                  options_.timeout);
  std::vector<NamedTensor> trained = with_gradient(parameters);
  if (trained.empty()) {
    reject("the module has no parameter that requires a gradient; it needs no wrapper");
  }
  std::vector<bool> is_sparse = find_sparse(trained, sparse, options_.logical_ranks);
  CoalescedBroadcast(parameters, "parameters").run(*group_, options_.timeout);
  buffers_.run(*group_, options_.timeout);
  reducer_ = std::make_shared<Reducer>(PassContext{.group = group_,
                                                   .options = options_,
                                                   .caps = caps,
                                                   .parameters = std::move(trained),
                                                   .is_sparse = std::move(is_sparse),
                                                   .buffers = buffers});
  unfreezing_ = std::make_unique<Unfreezing>(*wrapped_, *reducer_, sparse);
  logical_ = reducer_->find<LogicalRanks>();
  weighted_ = reducer_->find<WeightedSamples>();
}

Replica::~Replica() {
  if (joined_step_) {
    joined_step_->set_model(nullptr);
  }
}

void Replica::check_parameters(const std::vector<at::Tensor>& parameters,
                               const std::function<std::vector<NamedTensor>()>& named) const {
  if (c10::GradMode::is_enabled() && !wrapped_->are_all_of(parameters)) {
    refuse(wrapped_->find_replacement(named()));
  }
}

// refuse() of the group makes the stall reports and timeouts of waiting ranks name this call.
void Replica::refuse(const std::optional<std::string>& change) const {
  if (change) {
    throw group_->refuse(
        "DistributedDataParallel",
        *change + "; change a module before it is wrapped, or wrap it anew, on every rank");
  }
}

void Replica::before_forward(bool is_training) {
  if (is_in_backward()) {
    return;  // an activation checkpoint repeats a part of the forward pass
  }
  const bool has_gradients = c10::GradMode::is_enabled();
  if (has_gradients) {
    refuse(wrapped_->find_conversion());
    if (is_in_step_) {
      unfreezing_->refuse_within(logical_ != nullptr ? "for_each_shard()" : "run_step()");
    }
  }
  PassPart part{.is_active = true,
                .is_synchronized = is_synchronized_,
                .is_training = is_training,
                .has_thawed = has_gradients && wrapped_->has_thawed()};
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  if (weighted_ != nullptr) {
    before_weighted_forward(part);
  } else if (!join_) {
    explain_uneven_inputs([&] { prepare_pass(part, 0); });
  } else if (has_gradients) {
    part.has_thawed = join_->announce(part).has_thawed;
    prepare_pass(part, join_->root());
  }
  if (has_gradients) {
    forward_begin_ = std::chrono::steady_clock::now();
    reducer_->timer().begin(begin);
    reducer_->timer().add_exposed(*forward_begin_ - begin);
  }
}

void Replica::prepare_pass(const PassPart& part, int root) {
  if (part.is_synchronized && c10::GradMode::is_enabled()) {
    unfreezing_->take_in(part.has_thawed && logical_ == nullptr);
    reducer_->before_forward();
  }
  const bool is_shared = options_.broadcast_buffers && logical_ == nullptr;
  if (part.is_synchronized && is_shared && may_buffers_differ_) {
    explain(ErrorCode::kMismatch, unfreezing_->advice(), [&] {
      buffers_.run(*group_, options_.timeout, root);
    });
    may_buffers_differ_ = false;
  }
  may_buffers_differ_ = may_buffers_differ_ || part.is_training;
}

LogicalRanks& Replica::logical() const {
  if (logical_ == nullptr) {
    throw group_->refuse("DistributedDataParallel", "the option logical_ranks is not set");
  }
  return *logical_;
}

std::vector<int> Replica::shards() const {
  const ShardRange own = logical().shards();
  std::vector<int> shards(static_cast<std::size_t>(own.size()));
  std::iota(shards.begin(), shards.end(), own.lo);
  return shards;
}

std::int64_t Replica::shard_step() const {
  return logical().step();
}

void Replica::set_shard_step(std::int64_t step) {
  logical().set_step(step);
}

void Replica::run_shards(const std::function<void(int)>& run_shard) {
  LogicalRanks& step = logical();
  unfreezing_->take_in(wrapped_->has_thawed());
  is_in_step_ = true;
  try {
    step.run(*reducer_, [this](bool is_on) { set_synchronized(is_on); }, run_shard);
  } catch (...) {
    is_in_step_ = false;
    throw;
  }
  is_in_step_ = false;
}

// Reads the common votes of the last step, even if the step was aborted.
void Replica::take_votes() {
  reducer_->await_given_up_pass();
  if (const std::optional<SampleVotes> votes = weighted_->take_votes()) {
    root_ = votes->root;
    may_buffers_differ_ = may_buffers_differ_ || votes->have_changed_buffers;
  }
}

// Within a step a forward pass starts no operations, because ranks without samples do not make the
// step's forward passes.
void Replica::before_weighted_forward(const PassPart& part) {
  if (is_in_step_) {
    if (part.is_training) {
      weighted_->note_changed_buffers();
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
  if (weighted_ == nullptr) {
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
  refuse(wrapped_->find_conversion());
  const StepTimer::Time begin = std::chrono::steady_clock::now();
  take_votes();
  explain_uneven_inputs([&] {
    prepare_pass({.is_active = true, .is_synchronized = true, .has_thawed = wrapped_->has_thawed()},
                 root_);
  });
  reducer_->timer().begin(begin);
  reducer_->timer().add_exposed(std::chrono::steady_clock::now() - begin);
  reducer_->begin_step();
  reducer_->context().drop_gradients();
  weighted_->begin(n_samples);
  if (n_samples == 0) {
    reducer_->make_empty_pass([this] {
      weighted_->wait();
      return weighted_->votes().n_samples > 0;
    });
    weighted_->leave();
  } else {
    run_own_passes(run_passes);
  }
  take_votes();
  return weighted_->votes().n_samples > 0;
}

void Replica::run_own_passes(const std::function<void()>& run_passes) {
  is_in_step_ = true;
  try {
    run_passes();
    weighted_->end();
  } catch (...) {
    is_in_step_ = false;
    reducer_->give_up_step();
    weighted_->leave();
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
  return reducer_->context().buckets->size();
}

std::int64_t Replica::n_skipped() const {
  const FiniteCheck* const check = reducer_->find<FiniteCheck>();
  return check == nullptr ? 0 : check->n_skipped();
}

void Replica::begin_join(const JoinOptions& options, const std::vector<Replica*>& joined) {
  if (join_) {
    throw group_->refuse("DistributedDataParallel", "join() is called within join()");
  }
  join_ = std::make_unique<JoinSession>(*this, options, joined);
}

void Replica::end_join() noexcept {
  join_.reset();
}

int Replica::take_final_values() {
  const int root = join_->root();
  CoalescedBroadcast(wrapped_->parameters(), "parameters").run(*group_, options_.timeout, root);
  buffers_.run(*group_, options_.timeout, root);
  return root;
}

void Replica::set_joined_step(std::shared_ptr<JoinedStep> step) {
  if (joined_step_) {
    throw group_->refuse("DistributedDataParallel", "an optimizer is tied to this model already");
  }
  if (has_sparse_ && step->has_shadow()) {
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
  return join_ ? std::optional(join_->announce_step()) : std::nullopt;
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

void Replica::set_hook(CommHook hook) {
  if (!hook) {
    reject("the communication hook is empty");
  }
  reducer_->set_hook(std::move(hook));
}

void Replica::check_consistent() const {
  unisono::check_consistent(
      *group_, wrapped_->parameters(), "DistributedDataParallel", options_.timeout);
}

StepReport Replica::report() const {
  return gather_step_report(*group_, reducer_->timer(), options_.timeout);
}

const StepTimes& Replica::last_step() const {
  return reducer_->timer().last_step();
}

}  // namespace unisono::ddp
