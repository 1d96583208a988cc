#pragma once

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/named_tensor.h"
#include "unisono/torch/output_tensors.h"
#include "unisono/torch/replica.h"

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
/// `Module` is a torch::nn module holder (`Net` of TORCH_MODULE) or a std::shared_ptr to a module;
/// its forward() may take anything, and return whatever collect_tensors() can look into.
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
  /// A collective operation. Copies rank 0's parameters and buffers to all ranks. Parameters must
  /// not be added, converted or frozen later.
  ///
  /// Throws Error: kMismatch, on all ranks, with the parameter, two ranks and what each has, when
  /// names, types, shapes or the need for a gradient differ; kInvalidArgument for options and
  /// modules that can't be used.
  explicit DistributedDataParallel(Module module,
                                   std::shared_ptr<ProcessGroup> group = default_process_group(),
                                   const DistributedDataParallelOptions& options = {})
      : module_(std::move(module)),
        replica_(std::move(group),
                 named_tensors(module_->named_parameters()),
                 named_tensors(module_->named_buffers()),
                 options) {}

  /// The module's forward().
  template <class... Args>
  auto forward(Args&&... args) {
    replica_.before_forward(module_->is_training());
    auto result = module_->forward(std::forward<Args>(args)...);
    std::vector<at::Tensor*> tensors;
    ddp::collect_from(result, tensors);
    replica_.after_forward(tensors);
    return result;
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

  /// The module itself, to save it or to run it on one rank alone.
  [[nodiscard]] Module& module() { return module_; }

  [[nodiscard]] const Module& module() const { return module_; }

  [[nodiscard]] std::vector<at::Tensor> parameters() const { return module_->parameters(); }

  void train(bool on = true) { module_->train(on); }

  void eval() { module_->eval(); }

  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }

  /// Number of all_reduces of a backward pass. May change once, after the first one.
  [[nodiscard]] std::size_t n_buckets() const { return replica_.n_buckets(); }

 private:
  // A tensor that is registered twice counts once, under its first name.
  template <class Dictionary>
  static std::vector<ddp::NamedTensor> named_tensors(const Dictionary& dictionary) {
    std::vector<ddp::NamedTensor> result;
    for (const auto& item : dictionary) {
      const auto is_same = [&](const ddp::NamedTensor& other) {
        return other.tensor.is_same(item.value());
      };
      if (item.value().defined() && std::ranges::find_if(result, is_same) == result.end()) {
        result.push_back({.name = item.key(), .tensor = item.value()});
      }
    }
    return result;
  }

  Module module_;
  ddp::Replica replica_;
};

}  // namespace unisono
