#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/ddp/module_call.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace torch::nn {
class Module;
}

namespace unisono::nn {

/// Names and defaults follow PyTorch where possible.
struct DataParallelOptions {
  /// Largest number of parts of a batch; 0: the number of compute threads, or, for a module on an
  /// accelerator, the number of devices of the kind.
  int n_replicas = 0;
  /// Dimension along which batches are cut and results are joined.
  std::int64_t dim = 0;
  /// Device of each replica, the module's device first. By default, replicas of a module on an
  /// accelerator are on the module's device and the next devices of the kind; replicas of a module
  /// on the CPU are on the CPU.
  std::vector<at::Device> devices = {};
};

class ReplicaThreads;

/// Copies of a module that compute with the memory of the module's parameters, and the threads that
/// run the copies: the part of DataParallel that does not depend on the module's type.
///
/// Owned by DataParallel. The threads live until the object and all pending backward passes are
/// destroyed. Not thread-safe.
class ReplicaSet {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
  /// Runs forward() of a replica on the replica's part of the inputs, on the replica's thread.
  /// Returns the tensors in the result.
  using Forward = std::function<Tensors(std::size_t replica, const Tensors& inputs)>;

  /// Returns the device of each replica that the options request. Throws Error(kInvalidArgument)
  /// for a number out of range, for wrong devices, and for a module on several devices.
  static std::vector<at::Device> devices_of(const torch::nn::Module& module,
                                            const DataParallelOptions& options);

  /// `devices`: the device of each replica, to which the replica is moved. Throws
  /// Error(kInvalidArgument) unless all replicas have the parameters and buffers of the module, in
  /// separate memory.
  ReplicaSet(std::shared_ptr<torch::nn::Module> module,
             Modules replicas,
             std::vector<at::Device> devices,
             std::int64_t dim);
  ~ReplicaSet();

  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;
  ReplicaSet(ReplicaSet&&) = delete;
  ReplicaSet& operator=(ReplicaSet&&) = delete;

  [[nodiscard]] std::size_t size() const { return replicas_.size(); }

  /// Runs a forward pass and returns the joined tensors of the results. Gradients, computed by the
  /// threads, flow back to the inputs and to the module's parameters.
  Tensors run(const Tensors& inputs, const Forward& forward);

 private:
  struct Pass;
  class Backward;

  [[nodiscard]] bool is_on_devices() const { return !devices_.front().is_cpu(); }

  void follow_module();
  void follow_parameters(std::size_t replica, const Tensors& parameters) const;
  [[nodiscard]] std::vector<Tensors> scatter(const Tensors& inputs) const;
  void run_forward(Pass& pass, const Forward& forward);
  [[nodiscard]] Tensors gather(const Pass& pass) const;

  std::shared_ptr<torch::nn::Module> module_;
  Modules replicas_;
  std::vector<at::Device> devices_;  // Of the replicas; the first is the module's.
  std::int64_t dim_;
  std::shared_ptr<ReplicaThreads> threads_;  // shared with passes that wait for backward
};

/// Returns the module's clone(). Throws Error(kInvalidArgument) if the module has no clone().
[[nodiscard]] std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

/// Trains a module by several threads, or several devices, of a process. A batch is cut into parts.
/// A replica of the module runs each part, forward and backward, on a separate thread, and the
/// results are joined on the module's device. Gradients are accumulated in the module's parameters,
/// as for the whole batch. On devices, the threads of LibTorch run backward.
///
///     unisono::nn::DataParallel model(Net(), {.n_replicas = 2});
///     torch::optim::SGD optimizer(model.parameters(), 0.1);
///     ...
///     torch::nll_loss(model(images), labels).backward();
///
/// `Module` is a torch::nn module holder (`Net` of TORCH_MODULE) or a std::shared_ptr to a module.
/// The object owns the replicas, which persist between steps and share the memory of the module's
/// parameters; replicas on other devices than the module's get copies before each pass. Each
/// replica has separate buffers, which are copied from the module before each pass; the module
/// keeps the buffers of replica 0. Other members, except for the training mode, are copied once, so
/// change options of layers before the construction.
///
/// Dropout draws from the process's generator in the order in which the threads arrive. Not
/// thread-safe, like torch::nn modules. Errors of a replica are thrown with the replica's number.
/// For ranks of a job use DistributedDataParallel, which is faster because replicas are not
/// synchronized in each step.
template <class Module>
class DataParallel {
 public:
  /// Makes replicas by the module's clone(), which is available for classes that derive from
  /// torch::nn::Cloneable. Throws Error(kInvalidArgument) for a module without clone(), for clones
  /// with other parameters, and for invalid options.
  explicit DataParallel(Module module, const DataParallelOptions& options = {})
      : DataParallel(
            module,
            [&module] {
              return Module(std::dynamic_pointer_cast<Implementation>(clone_module(*module)));
            },
            options) {}

  /// For a module without clone(): `make_replica` returns a module of the same class, with
  /// parameters of any values.
  DataParallel(Module module,
               const std::function<Module()>& make_replica,
               const DataParallelOptions& options = {})
      : module_(std::move(module)) {
    ReplicaSet::Modules bases;
    std::vector<at::Device> devices = ReplicaSet::devices_of(*module_, options);
    for (std::size_t i = 0; i < devices.size(); ++i) {
      replicas_.push_back(make_replica());
      bases.push_back(pointer_to(replicas_.back()));
    }
    set_ = std::make_unique<ReplicaSet>(
        pointer_to(module_), std::move(bases), std::move(devices), options.dim);
  }

  /// Calls the module's forward(). Tensor arguments are cut into as many parts as torch::chunk()
  /// makes; other arguments are passed to each replica unchanged. Returns the type of the module's
  /// forward(): tensors, or a type that collect_tensors() supports. The tensors in the result are
  /// joined; tensors without dimensions become a single tensor with an element per replica. Other
  /// parts of the result are replica 0's.
  ///
  /// Throws Error with the replica's number and message, and kInvalidArgument for tensors that
  /// cannot be cut into equally many parts.
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

  /// The wrapped module, to save its values or to load values.
  [[nodiscard]] Module& module() { return module_; }

  [[nodiscard]] const Module& module() const { return module_; }

  /// Returns the module's parameters, each once even if registered under several names. For
  /// optimizers.
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
