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
#include "unisono/torch/ddp/any_module.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/join.h"
#include "unisono/torch/ddp/output_tensors.h"
#include "unisono/torch/ddp/replica.h"
#include "unisono/torch/ddp/sparse_gradients.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// While it lives, backward passes of forward passes made under it leave gradients local.
class [[nodiscard]] NoSync {
 public:
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

/// Trains one module on all ranks of a group: each rank feeds its share of a batch, and after
/// backward() every parameter's gradient is the mean over the ranks, the same bits on each, so that
/// equal optimizers keep the copies equal.
///
///     unisono::DistributedDataParallel model(Net(), unisono::init_process_group());
///     torch::optim::SGD optimizer(model.parameters(), 0.1);
///     ...
///     torch::nll_loss(model(images), labels).backward();
///     optimizer.step();
///
/// `Module` is a torch::nn module holder (`Net` of TORCH_MODULE), a std::shared_ptr to a module, a
/// torch::nn::AnyModule or a ScriptModule; its forward() may take anything, and return whatever
/// collect_tensors() can look into.
///
/// Gradients are reduced while backward computes the rest. `.grad` is a view of memory that the
/// library owns: after backward it may be read and changed in place. A gradient's sum over ranks is
/// the canonical tree's (see ProcessGroup::all_reduce). Every rank makes the same passes in the
/// same order. An error of communication is thrown by backward(), or by the next forward pass. If
/// one rank's backward() throws half way, backward() throws kMismatch on the others, and the job
/// can go on with the next forward pass.
///
/// Not thread-safe, as modules are.
template <class Module>
class DistributedDataParallel {
 public:
  /// A collective operation. Copies rank 0's parameters and buffers to all ranks, once: values that
  /// are loaded into the module later must be loaded on every rank. Parameters must not be added,
  /// replaced or converted later, and be frozen only with find_unused_parameters. Those that are
  /// frozen now may be thawed between steps, the same ones on every rank: the next forward pass
  /// whose gradients are averaged takes them in.
  ///
  /// Throws Error: kMismatch, on all ranks, with the parameter, two ranks and what each has, when
  /// names, types, shapes or the need for a gradient differ; kInvalidArgument for options and
  /// modules that can't be used.
  explicit DistributedDataParallel(Module module,
                                   std::shared_ptr<ProcessGroup> group = default_process_group(),
                                   const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)),
        replica_(std::move(group),
                 distinct_tensors(ddp::module_of(module_).named_parameters()),
                 distinct_tensors(ddp::module_of(module_).named_buffers()),
                 sparse_parameters(),
                 options) {}

  /// The module's forward().
  ///
  /// Throws RefusedCall, with the tensor's name, when a parameter was added, replaced, removed,
  /// converted or resized after the module was wrapped, or a buffer converted or resized. A rank on
  /// which this happened alone is named by the others' timeouts.
  template <class... Args>
    requires(!ddp::kIsAnyModule<Module>)
  auto forward(Args&&... args) {
    return pass([&] { return module_->forward(std::forward<Args>(args)...); });
  }

  /// The same for a torch::nn::AnyModule, whose module returns `Result`. It converts nothing:
  /// arguments have the types that the module's forward() declares. Throws RefusedCall, with what
  /// the module takes or returns, where they have not, or where it does not return `Result`.
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
  /// pass outside of it, which averages the sums. Forward passes count, as in PyTorch.
  ///
  ///     {
  ///       auto guard = model.no_sync();
  ///       loss(model(first_half)).backward();
  ///     }
  ///     loss(model(second_half)).backward();
  NoSync no_sync() { return NoSync(replica_); }

  /// One step with the option logical_ranks = V: calls `run_shard(shard)` for this rank's shards of
  /// the global batch, which makes a forward pass of that shard's samples and calls backward()
  /// once. Gradients are dropped before, and afterwards the mean over all V shards, added in the
  /// order of the canonical tree over the shards. A collective operation.
  ///
  ///     model.for_each_shard([&](int shard) {
  ///       const Batch batch = loaders[shard].next();  // of a DistributedSampler(n, V, shard)
  ///       torch::nll_loss(model(batch.images), batch.labels).backward();
  ///     });
  ///     optimizer.step();
  ///
  /// Parameters then have the same bits after as many steps on any number of ranks up to V, also
  /// if that changes between steps, where each rank has as many compute threads
  /// (torch::set_num_threads()) and processors of one kind. Random numbers of the CPU's generator
  /// are seeded by shard_seed, the step's number and the shard, and go on after the call as if it
  /// had not been. Costs about log2 of a rank's shards times the gradients' memory. Where V is a
  /// power of two times the ranks, nothing more is sent than without; else, a rank sends its sums
  /// in up to 2 log2(V) parts.
  ///
  /// Throws Error(kInvalidArgument) for a shard with no or several backward passes, RefusedCall
  /// without logical_ranks, and what `run_shard` throws: the other ranks' backward() then throws
  /// kMismatch, and the job can go on with the next step.
  template <class RunShard>
  void for_each_shard(RunShard&& run_shard) {
    replica_.run_shards(std::forward<RunShard>(run_shard));
  }

  /// One step with the option weigh_samples: calls `run_passes()`, which makes the forward and
  /// backward passes of this rank's `n_samples` samples. Gradients are dropped before, and
  /// afterwards the mean over all ranks' samples, where the loss is the mean over those of its rank
  /// (of several passes, the last averages their sum; make the others under no_sync()).
  ///
  /// A rank that has no samples, as its data are at an end, says 0: it makes no passes, and gets
  /// the same gradients. Returns false, on all ranks in the same call, when no rank has any:
  /// nothing is to be done then.
  ///
  ///     while (model.run_step(batch.size(), [&] {  // 0 once there is none
  ///       torch::nll_loss(model(batch.images), batch.labels).backward();
  ///     })) {
  ///       optimizer.step();
  ///       batch = loader.next();
  ///     }
  ///
  /// A collective operation, which adds no other: ranks say their numbers in the first bucket. The
  /// step that finds no samples sends that bucket alone. All ranks have the same parameters,
  /// buffers and optimizers at any time, where these do not depend on anything else.
  ///
  /// Throws Error(kInvalidArgument) when `run_passes` makes no synchronized backward pass, or two,
  /// RefusedCall without weigh_samples and for an n_samples that can't be, and what `run_passes`
  /// throws: on the other ranks the step throws kMismatch, and the job can go on with the next.
  template <class RunPasses>
  bool run_step(std::int64_t n_samples, RunPasses&& run_passes) {
    return replica_.run_step(n_samples, std::forward<RunPasses>(run_passes));
  }

  /// This rank's shards, in order.
  [[nodiscard]] std::vector<int> shards() const {
    std::vector<int> shards;
    for (int shard = replica_.shards().lo; shard < replica_.shards().hi; ++shard) {
      shards.push_back(shard);
    }
    return shards;
  }

  /// Steps that for_each_shard() has made; set it where training goes on from a checkpoint.
  [[nodiscard]] std::int64_t shard_step() const { return replica_.shard_step(); }

  void set_shard_step(std::int64_t step) { replica_.set_shard_step(step); }

  /// unisono::join() for this model alone.
  ///
  ///     model.join([&] {
  ///       for (const Batch& batch : mine) { ... }
  ///     });
  template <class Loop>
  int join(Loop&& loop, const JoinOptions& options = {}) {
    return ddp::run_joined({&replica_}, options, std::forward<Loop>(loop));
  }

  /// For optimizers whose step() is a collective operation, to be called under join(): see
  /// ZeroRedundancyOptimizer::join_with(). Throws RefusedCall where one is tied to the model.
  void tie(std::shared_ptr<ddp::JoinedStep> step) { replica_.set_joined_step(std::move(step)); }

  /// From now on `hook(*state, bucket)` reduces each full bucket, instead of an all_reduce that
  /// averages it: one of comm_hooks.h and what lies beside it, or your own (see CommHook). Once,
  /// before the first backward pass, on every rank the same.
  ///
  ///     model.register_comm_hook(group, unisono::fp16_compress_hook);
  ///     model.register_comm_hook(std::make_shared<unisono::PowerSgdState>(group, options),
  ///                              unisono::power_sgd_hook);
  ///
  /// Throws Error(kInvalidArgument) when there is a hook, or a pass has been made before.
  template <class State, class Hook>
  void register_comm_hook(std::shared_ptr<State> state, Hook hook) {
    replica_.set_hook([state = std::move(state), hook = std::move(hook)](
                          const GradBucket& bucket) -> BucketWork { return hook(*state, bucket); });
  }

  /// The same for a hook whose state is the model's process group.
  template <class Hook>
  void register_comm_hook(std::nullptr_t /*state*/, Hook hook) {
    register_comm_hook(replica_.group(), std::move(hook));
  }

  /// A collective operation. Throws Error(kMismatch) on every rank, with the first parameter that
  /// differs, unless all ranks have the same bits in all of them: where values may have been loaded
  /// on some ranks only. Hashes all parameters and sends 16 bytes.
  void check_consistent() const { replica_.check_consistent(); }

  /// Where the time of the last steps went, on each rank: forward, backward, communication that
  /// backward could not hide, waiting for the slowest rank, and the rest. A step is what ends with
  /// a synchronized backward pass. A collective operation, of 6 KiB for each rank.
  ///
  ///     const unisono::StepReport report = model.report();  // on every rank
  ///     if (group->rank() == 0) { std::cout << report.table(); }
  [[nodiscard]] StepReport report() const { return replica_.report(); }

  /// Where the time of this rank's last step went; zeros before the first. For a log of each step:
  ///
  ///     progress.step({{"loss", loss}, {"exposed ms", 1e3 * model.last_step().exposed}});
  [[nodiscard]] const StepTimes& last_step() const { return replica_.last_step(); }

  /// The module itself, to save it, to load values into it (on every rank) or to run it on one rank
  /// alone.
  [[nodiscard]] Module& module() { return module_; }

  [[nodiscard]] const Module& module() const { return module_; }

  /// The module's, each once, also those of several names: for optimizers.
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    return distinct_tensors(ddp::module_of(module_).parameters());
  }

  void train(bool on = true) { ddp::module_of(module_).train(on); }

  void eval() { ddp::module_of(module_).eval(); }

  void zero_grad(bool set_to_none = true) { ddp::module_of(module_).zero_grad(set_to_none); }

  /// Number of all_reduces of a backward pass. May change after the first one, and where
  /// parameters are thawed.
  [[nodiscard]] std::size_t n_buckets() const { return replica_.n_buckets(); }

  /// Passes whose gradients all ranks have dropped, by NonFiniteGradients::kSkip.
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

  // Of TorchScript's modules it is not known.
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

/// Runs `loop`, which trains the models, on ranks whose numbers of batches differ: a rank that is
/// done goes on to take part in the others' operations, with gradients of zero, until all are.
/// All ranks then have the parameters and buffers of a rank that made the last step. A collective
/// operation, on every rank with the same models in the same order.
///
/// Returns the rank whose values the first model has. What else the training keeps (the state of
/// optimizers, schedulers, GradScalers) is not the same on the ranks that were done early, and must
/// be copied from that rank before training goes on, or the models go apart. Or put one join()
/// around all of the training.
///
/// A rank that is done knows one forward and one backward pass of a model at a time: in the loop
/// they come before the next model's, and there must be neither two forward passes before a
/// backward pass nor a forward pass without one, unless gradients are off. It takes part in no
/// other operation of the loop: not in SyncBatchNorm's, not in those of a GradScaler with a group
/// or of a PeriodicModelAverager, not in the loop's own. In those of a ZeroRedundancyOptimizer it
/// does, after its join_with(); all models then have one group.
///
/// Costs an all_reduce of a byte for each rank, in each forward pass that has gradients; others
/// copy no buffers. What the loop throws, it throws, and the other ranks are not told.
template <class Loop, class... Modules>
int join(const JoinOptions& options, Loop&& loop, DistributedDataParallel<Modules>&... models) {
  return ddp::run_joined({&models.replica_...}, options, std::forward<Loop>(loop));
}

}  // namespace unisono
