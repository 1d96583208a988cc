#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>

namespace torch::nn {
class Module;
}

namespace unisono::nn {

/// Names and defaults are PyTorch's, where it has them.
struct DataParallelOptions {
  /// At most so many parts of a batch at a time; 0: one for each compute thread.
  int n_replicas = 0;
  /// Batches are cut along it, and results put together.
  std::int64_t dim = 0;
};

class ReplicaThreads;

/// Copies of a module that compute with its parameters' memory, and the threads that run them: all
/// of DataParallel that does not depend on the module's type.
class ReplicaSet {
 public:
  using Tensors = std::vector<at::Tensor>;
  using Modules = std::vector<std::shared_ptr<torch::nn::Module>>;
  /// Runs that replica's forward() on its part of the inputs; returns the tensors in the result.
  using Forward = std::function<Tensors(std::size_t replica, const Tensors& inputs)>;

  /// The number of replicas that the options ask for. Throws Error(kInvalidArgument) unless it is
  /// one at least.
  static std::size_t n_replicas(const DataParallelOptions& options);

  /// Throws Error(kInvalidArgument) unless replicas have the module's parameters and buffers, in
  /// memory of their own.
  ReplicaSet(std::shared_ptr<torch::nn::Module> module, Modules replicas, std::int64_t dim);
  ~ReplicaSet();

  ReplicaSet(const ReplicaSet&) = delete;
  ReplicaSet& operator=(const ReplicaSet&) = delete;
  ReplicaSet(ReplicaSet&&) = delete;
  ReplicaSet& operator=(ReplicaSet&&) = delete;

  [[nodiscard]] std::size_t size() const { return replicas_.size(); }

  /// Each tensor of the results put together; gradients flow back to the inputs and to the module's
  /// parameters, computed by the threads.
  Tensors run(const Tensors& inputs, const Forward& forward);

 private:
  struct Pass;
  class Backward;

  void follow_module();
  [[nodiscard]] std::vector<Tensors> scatter(const Tensors& inputs) const;
  void run_forward(Pass& pass, const Forward& forward);
  [[nodiscard]] Tensors gather(const Pass& pass) const;

  std::shared_ptr<torch::nn::Module> module_;
  Modules replicas_;
  std::int64_t dim_;
  std::shared_ptr<ReplicaThreads> threads_;  // shared with passes whose backward is to come
};

/// The module's clone(). Throws Error(kInvalidArgument) where it has none.
[[nodiscard]] std::shared_ptr<torch::nn::Module> clone_module(const torch::nn::Module& module);

}  // namespace unisono::nn
