#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/output_tensors.h"
#include "unisono/torch/nn/replica_set.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::nn {

/// Trains a module by several threads of one process: a batch is cut into parts, a replica of the
/// module runs each on a thread of its own, forward and backward, and the results are put together.
/// Gradients end in the module's parameters, as if it had seen the whole batch.
///
///     unisono::nn::DataParallel model(Net(), {.n_replicas = 2});
///     torch::optim::SGD optimizer(model.parameters(), 0.1);
///     ...
///     torch::nll_loss(model(images), labels).backward();
///
/// `Module` is a torch::nn module holder (`Net` of TORCH_MODULE) or a std::shared_ptr to a module.
/// Replicas stay from step to step and share the memory of the module's parameters. Each has
/// buffers of its own, which it gets anew from the module before each pass; what replica 0 makes of
/// its buffers, the module keeps. What is neither parameter nor buffer nor training mode is copied
/// once, so change options of layers before.
///
/// Dropout takes its random numbers from the one generator of the process, in the order in which
/// the threads come. Not thread-safe, as modules are. For ranks of a job see
/// DistributedDataParallel, which is faster: its replicas need not be put together in each step.
template <class Module>
class DataParallel {
 public:
  /// Replicas are made by the module's clone(), which those have that derive from
  /// torch::nn::Cloneable. Throws Error(kInvalidArgument) for a module that has none, or whose
  /// clones have other parameters, and for options of no meaning.
  explicit DataParallel(Module module, const DataParallelOptions& options = {})
      : DataParallel(
            module,
            [&module] {
              return Module(std::dynamic_pointer_cast<Implementation>(clone_module(*module)));
            },
            options) {}

  /// The same for a module without clone(): `make_replica` makes one of the same class, with
  /// parameters of any values.
  DataParallel(Module module,
               const std::function<Module()>& make_replica,
               const DataParallelOptions& options = {})
      : module_(std::move(module)) {
    ReplicaSet::Modules bases;
    const std::size_t n_replicas = ReplicaSet::n_replicas(options);
    for (std::size_t i = 0; i < n_replicas; ++i) {
      replicas_.push_back(make_replica());
      bases.push_back(pointer_to(replicas_.back()));
    }
    set_ = std::make_unique<ReplicaSet>(pointer_to(module_), std::move(bases), options.dim);
  }

  /// The module's forward(). Arguments that are tensors are cut, in as many parts as
  /// torch::chunk() makes; all others go to each replica as they are. Returns what the module does:
  /// tensors, or what collect_tensors() can look into, in which tensors are put together, those of
  /// no dimension into one of an element per replica. All else is replica 0's.
  ///
  /// Throws Error with the replica's number and what it threw; kInvalidArgument for tensors that
  /// can't be cut alike.
  template <class... Args>
  auto forward(const Args&... args) {
    using Result = std::decay_t<decltype(module_->forward(args...))>;
    std::vector<std::optional<Result>> results(replicas_.size());
    const auto run_replica = [&](std::size_t replica, const ReplicaSet::Tensors& parts) {
      std::size_t n_taken = 0;
      const auto part_of = [&](const auto& arg) -> const auto& {
        if constexpr (std::is_same_v<std::decay_t<decltype(arg)>, at::Tensor>) {
          return parts[n_taken++];
        } else {
          return arg;
        }
      };
      const std::tuple<const Args&...> own{part_of(args)...};
      std::apply(
          [&](const auto&... own_args) {
            results[replica].emplace(replicas_[replica]->forward(own_args...));
          },
          own);
      ReplicaSet::Tensors tensors;
      for (const at::Tensor* const tensor : tensors_in(*results[replica])) {
        tensors.push_back(*tensor);
      }
      return tensors;
    };
    ReplicaSet::Tensors inputs;
    (append_if_tensor(args, inputs), ...);
    const ReplicaSet::Tensors gathered = set_->run(inputs, run_replica);
    const std::vector<at::Tensor*> places = tensors_in(*results.front());
    for (std::size_t i = 0; i < places.size(); ++i) {
      *places[i] = gathered[i];
    }
    return std::move(*results.front());
  }

  template <class... Args>
  auto operator()(const Args&... args) {
    return forward(args...);
  }

  /// The module itself, to save it or to load values into it.
  [[nodiscard]] Module& module() { return module_; }

  [[nodiscard]] const Module& module() const { return module_; }

  /// The module's, each once, also those of several names: for optimizers.
  [[nodiscard]] std::vector<at::Tensor> parameters() const {
    return distinct_tensors(module_->parameters());
  }

  void train(bool on = true) { module_->train(on); }

  void eval() { module_->eval(); }

  void zero_grad(bool set_to_none = true) { module_->zero_grad(set_to_none); }

  [[nodiscard]] std::size_t n_replicas() const { return replicas_.size(); }

 private:
  using Implementation = std::remove_reference_t<decltype(*std::declval<Module&>())>;

  static std::shared_ptr<torch::nn::Module> pointer_to(const Module& module) {
    if constexpr (requires { module.ptr(); }) {
      return module.ptr();
    } else {
      return module;
    }
  }

  template <class Arg>
  static void append_if_tensor(const Arg& arg, ReplicaSet::Tensors& tensors) {
    if constexpr (std::is_same_v<Arg, at::Tensor>) {
      tensors.push_back(arg);
    }
  }

  template <class Result>
  static std::vector<at::Tensor*> tensors_in(Result& result) {
    std::vector<at::Tensor*> tensors;
    ddp::collect_from(result, tensors);
    return tensors;
  }

  Module module_;
  std::vector<Module> replicas_;
  std::unique_ptr<ReplicaSet> set_;
};

}  // namespace unisono::nn
