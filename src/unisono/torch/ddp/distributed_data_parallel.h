#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/report/step_report.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/module_call.h"
#include "unisono/torch/ddp/options.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// RAII guard: gradients of forward passes made during the guard's lifetime stay local to the rank.
/// The destructor restores the state before the guard. Must not outlive the model.
class [[nodiscard]] NoSync {
 public:
  /// Called by DistributedDataParallel::no_sync().
  explicit NoSync(ddp::Replica& replica)
      : replica_(replica), was_synchronized_(replica.is_synchronized()) {
    replica_.set_synchronized(false);
  }

  ~NoSync() { replica_.set_synchronized(was_synchronized_); }

  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;
  NoSync(NoSync&&) = delete;
  NoSync& operator=(NoSync&&) = delete;

 private:
  ddp::Replica& replica_;
  bool was_synchronized_;
};

/// Trains a module on all ranks of a group. Each rank computes on a share of a batch. After
/// backward() every parameter's gradient is the mean over the ranks, with equal bits on all ranks,
/// so equal optimizers keep the copies of the module equal.
///
///     unisono::DistributedDataParallel model(Net(), unisono::init_process_group());
///     torch::optim::SGD optimizer(model.parameters(), 0.1);
///     ...
///     torch::nll_loss(model(images), labels).backward();
///     optimizer.step();
///
/// `Module` is a torch::nn module holder (`Net` of TORCH_MODULE), a std::shared_ptr to a module, a
/// torch::nn::AnyModule or a ScriptModule. forward() of the module may take any arguments and
/// return any type that collect_tensors() supports.
///
/// Gradients are reduced while backward computes the remaining gradients. `.grad` is a view of
/// memory that the library owns; the caller may read and change `.grad` in place after backward.
/// Sums over ranks follow the canonical tree (see ProcessGroup::all_reduce). Every rank makes the
/// same passes in the same order.
///
/// Owner and lifetime: the wrapper holds the module and the process group. The destructor removes
/// the gradient hooks; later backward passes leave gradients local.
///
/// Threads: not thread-safe, like torch::nn modules. Gradient hooks run on the thread that calls
/// backward().
///
/// Errors: communication errors are thrown by backward() or by the next forward pass. If backward()
/// of one rank throws an exception in the middle of a pass, backward() of the other ranks throws
/// kMismatch, and the job can continue with the next forward pass.
template <class Module>
class DistributedDataParallel {
 public:
  /// A collective operation. Copies rank 0's parameters and buffers to all ranks once; values that
  /// are loaded into the module later must be loaded on every rank. Parameters must not be added,
  /// replaced or converted later, and may be frozen later only with find_unused_parameters.
  /// Parameters that are frozen at construction may be thawed between steps, the same parameters on
  /// every rank: the next forward pass with averaged gradients includes the thawed parameters.
  ///
  /// Throws Error(kMismatch) on all ranks if names, types, shapes or requires_grad differ; the
  /// message names the parameter, two ranks and both values. Throws Error(kInvalidArgument) for
  /// unusable options and modules.
  explicit DistributedDataParallel(Module module,
                                   std::shared_ptr<ProcessGroup> group = default_process_group(),
                                   const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)),
        replica_(std::move(group),
                 distinct_tensors(ddp::module_of(module_).named_parameters()),
                 distinct_tensors(ddp::module_of(module_).named_buffers()),
                 sparse_parameters(),
                 options) {}

  /// Calls forward() of the module.
  ///
  /// Throws RefusedCall, with the tensor's name, if a parameter was added, replaced, removed,
  /// converted or resized after the module was wrapped, or a buffer was converted or resized. If
  /// only one rank throws, the timeouts of the other ranks name that rank.
  template <class... Args>
    requires(!ddp::kIsAnyModule<Module>)
  auto forward(Args&&... args) {
    return pass([&] { return module_->forward(std::forward<Args>(args)...); });
  }

  /// Calls forward() of the module in a torch::nn::AnyModule, which returns `Result`. No argument
  /// is converted: arguments must have the types that the module's forward() declares. Throws
  /// RefusedCall, with the expected types, for other argument types or if the module does not
  /// return `Result`.
  template <class Result = at::Tensor, class... Args>
    requires(ddp::kIsAnyModule<Module>)
  Result forward(Args&&... args) {
    return pass([&] {
      return ddp::forward_of<Result>(module_, *replica_.group(), std::forward<Args>(args)...);
    });
  }

  template <class... Args>
  auto operator()(Args&&... args) {
    return forward(std::forward<Args>(args)...);
  }

  /// Passes under the returned guard are not synchronized: gradients add up locally until the next
  /// pass outside the guard, which averages the sums. The guard applies to the forward passes made
  /// under it, as in PyTorch.
  ///
  ///     {
  ///       auto guard = model.no_sync();
  ///       loss(model(first_half)).backward();
  ///     }
  ///     loss(model(second_half)).backward();
  NoSync no_sync() { return NoSync(replica_); }

  /// Makes a step with the option logical_ranks = V. Calls `run_shard(shard)` for each of this
  /// rank's shards of the global batch; `run_shard` makes a forward pass of the shard's samples and
  /// calls backward() once. Gradients are dropped before the step. After the step each gradient is
  /// the mean over all V shards, added in the order of the canonical tree over the shards. A
  /// collective operation.
  ///
  ///     model.for_each_shard([&](int shard) {
  ///       const Batch batch = loaders[shard].next();  // of a DistributedSampler(n, V, shard)
  ///       torch::nll_loss(model(batch.images), batch.labels).backward();
  ///     });
  ///     optimizer.step();
  ///
  /// After equally many steps, parameters have the same bits on any number of ranks up to V, even
  /// if the number of ranks changes between steps. This holds if every rank has the same number of
  /// compute threads (torch::set_num_threads()) and the same kind of processor. The CPU's random
  /// generator is seeded by shard_seed, the step's number and the shard, and continues after the
  /// call from the state before the call.
  ///
  /// Cost: memory for about log2(shards per rank) copies of the gradients. If V is a power of two
  /// times the number of ranks, the traffic equals that of a step without logical ranks; otherwise
  /// a rank sends the sums in up to 2 log2(V) parts.
  ///
  /// Throws Error(kInvalidArgument) for a shard with zero or several backward passes, RefusedCall
  /// without logical_ranks, and any exception of `run_shard`. In the last case backward() of the
  /// other ranks throws kMismatch, and the job can continue with the next step.
  template <class RunShard>
  void for_each_shard(RunShard&& run_shard) {
    replica_.run_shards(std::forward<RunShard>(run_shard));
  }

  /// Makes a step with the option weigh_samples. Calls `run_passes()`, which makes the forward and
  /// backward passes of this rank's `n_samples` samples. Gradients are dropped before the step.
  /// After the step each gradient is the mean over the samples of all ranks, provided that each
  /// rank's loss is the mean over the samples of that rank. With several passes, the last pass
  /// averages the sum; make the other passes under no_sync().
  ///
  /// A rank without remaining samples passes 0, makes no passes and receives the same gradients.
  /// Returns false, on all ranks in the same call, if no rank has samples; no gradients are set
  /// then.
  ///
  ///     while (model.run_step(batch.size(), [&] {  // 0 at the end of the data
  ///       torch::nll_loss(model(batch.images), batch.labels).backward();
  ///     })) {
  ///       optimizer.step();
  ///       batch = loader.next();
  ///     }
  ///
  /// A collective operation without additional messages: the first bucket carries the numbers of
  /// samples. The step that finds no samples sends the first bucket only. All ranks have equal
  /// parameters, buffers and optimizers at any time, if these depend on the model's training alone.
  ///
  /// Throws Error(kInvalidArgument) if `run_passes` makes no synchronized backward pass or several,
  /// RefusedCall without weigh_samples or for an invalid n_samples, and any exception of
  /// `run_passes`. In the last case the step throws kMismatch on the other ranks, and the job can
  /// continue with the next step.
  template <class RunPasses>
  bool run_step(std::int64_t n_samples, RunPasses&& run_passes) {
    return replica_.run_step(n_samples, std::forward<RunPasses>(run_passes));
  }

  /// Returns this rank's shards in ascending order.
  [[nodiscard]] std::vector<int> shards() const { return replica_.shards(); }

  /// Number of steps that for_each_shard() has made. Set the number when training continues from a
  /// checkpoint.
  [[nodiscard]] std::int64_t shard_step() const { return replica_.shard_step(); }

  /// Sets the number of the next step. Set the number when training is resumed.
  void set_shard_step(std::int64_t step) { replica_.set_shard_step(step); }

  /// Calls unisono::join() for this model alone.
  ///
  ///     model.join([&] {
  ///       for (const Batch& batch : mine) { ... }
  ///     });
  template <class Loop>
  int join(Loop&& loop, const JoinOptions& options = {}) {
    return ddp::run_joined({&replica_}, options, std::forward<Loop>(loop));
  }

  /// For optimizers with a collective step(), under join(): see
  /// ZeroRedundancyOptimizer::join_with(). Throws RefusedCall if an optimizer is tied to the model
  /// already.
  void tie(std::shared_ptr<ddp::JoinedStep> step) { replica_.set_joined_step(std::move(step)); }

  /// Registers a hook: `hook(*state, bucket)` reduces each full bucket instead of the averaging
  /// all_reduce. The hook comes from a header in comm_hooks/ or from your program (see CommHook).
  /// Call once, before the first backward pass, with the same hook on every rank.
  ///
  ///     model.register_comm_hook(group, unisono::fp16_compress_hook);
  ///     model.register_comm_hook(std::make_shared<unisono::PowerSgdState>(group, options),
  ///                              unisono::power_sgd_hook);
  ///
  /// Throws RefusedCall if a hook is registered already or a backward pass has been made, and with
  /// logical_ranks or weigh_samples.
  template <class State, class Hook>
  void register_comm_hook(std::shared_ptr<State> state, Hook hook) {
    replica_.set_hook([state = std::move(state), hook = std::move(hook)](
                          const GradBucket& bucket) -> BucketWork { return hook(*state, bucket); });
  }

  /// Registers a hook with the model's process group as its state.
  template <class Hook>
  void register_comm_hook(std::nullptr_t /*state*/, Hook hook) {
    register_comm_hook(replica_.group(), std::move(hook));
  }

  /// Throws Error(kMismatch) on every rank, with the first parameter that differs, unless all ranks
  /// hold the same bits in all parameters. Use the check after values may have been loaded on some
  /// ranks only. A collective operation: hashes all parameters and sends 16 bytes.
  void check_consistent() const { replica_.check_consistent(); }

  /// Returns the times of the last steps on each rank: forward, backward, communication that
  /// backward did not hide, waiting for the slowest rank, and the rest. A step ends with a
  /// synchronized backward pass. A collective operation that sends 6 KiB per rank.
  ///
  ///     const unisono::StepReport report = model.report();  // on every rank
  ///     if (group->rank() == 0) { std::cout << report.table(); }
  [[nodiscard]] StepReport report() const { return replica_.report(); }

  /// Times of this rank's last step; zeros before the first step. For a log of each step:
  ///
  ///     progress.step({{"loss", loss}, {"exposed ms", 1e3 * model.last_step().exposed}});
  [[nodiscard]] const StepTimes& last_step() const { return replica_.last_step(); }

  /// The wrapped module, to save or load values (load on every rank), or to run the module on a
  /// single rank.
  [[nodiscard]] Module& module() { return module_; }

  [[nodiscard]] const Module& module() const { return module_; }

  /// Returns the module's parameters, each once even if registered under several names. For
  /// optimizers.
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    return distinct_tensors(ddp::module_of(module_).parameters());
  }

  void train(bool on = true) { ddp::module_of(module_).train(on); }

  void eval() { ddp::module_of(module_).eval(); }

  void zero_grad(bool set_to_none = true) { ddp::module_of(module_).zero_grad(set_to_none); }

  /// Number of buckets, which is the number of all_reduces of a backward pass. May change after the
  /// first pass and after parameters are thawed.
  [[nodiscard]] std::size_t n_buckets() const { return replica_.n_buckets(); }

  /// Number of passes with gradients that all ranks dropped because of NonFiniteGradients::kSkip.
  [[nodiscard]] std::int64_t n_skipped_passes() const { return replica_.n_skipped(); }

 private:
  template <class Loop, class... Modules>
  friend int join(const JoinOptions& options,
                  Loop&& loop,
                  DistributedDataParallel<Modules>&... models);

  template <class Call>
  auto pass(const Call& call) {
    auto& module = ddp::module_of(module_);
    replica_.check_parameters(module.parameters(),
                              [&] { return distinct_tensors(module.named_parameters()); });
    replica_.before_forward(module.is_training());
    auto result = call();
    std::vector<at::Tensor*> tensors;
    ddp::collect_from(result, tensors);
    replica_.after_forward(tensors);
    return result;
  }

  // Returns no parameters for modules of TorchScript: their layers do not reveal sparse gradients.
  [[nodiscard]] std::vector<at::Tensor> sparse_parameters() const {
    using Wrapped = decltype(&ddp::module_of(module_));
    if constexpr (std::is_convertible_v<Wrapped, const torch::nn::Module*>) {
      return ddp::sparse_parameters(ddp::module_of(module_));
    } else {
      return {};
    }
  }

  Module module_;
  ddp::Replica replica_;
};

/// Runs `loop`, which trains the models, on ranks with different numbers of batches. A rank that
/// finishes the loop continues to take part in the operations of the other ranks, with gradients of
/// zero, until all ranks have finished. All ranks then hold the parameters and buffers of a rank
/// that made the last step. A collective operation; every rank passes the same models in the same
/// order.
///
/// Returns the rank that the values of the first model come from. Other training state (optimizers,
/// schedulers, GradScalers) is stale on ranks that finished early. Copy that state from the
/// returned rank before training continues, or the models diverge. Alternatively, put a single
/// join() around the whole training.
///
/// A finished rank shadows a single forward and backward pass per model at a time. In the loop,
/// both passes of a model come before the next model's passes. Two forward passes before a backward
/// pass, and a forward pass without a backward pass, are not allowed unless gradients are off. A
/// finished rank takes part in no other operation of the loop: neither SyncBatchNorm's, nor a
/// GradScaler's with a group, nor a PeriodicModelAverager's, nor the loop's own. The exception is a
/// ZeroRedundancyOptimizer after join_with(); all models then share a group.
///
/// Cost: an all_reduce of one byte per rank in each forward pass with gradients; other forward
/// passes copy no buffers. An exception of the loop is rethrown; the other ranks are not notified.
template <class Loop, class... Modules>
int join(const JoinOptions& options, Loop&& loop, DistributedDataParallel<Modules>&... models) {
  return ddp::run_joined({&models.replica_...}, options, std::forward<Loop>(loop));
}

}  // namespace unisono
