#pragma once

#include <memory>
#include <string>

#include <torch/nn/module.h>

namespace bench {

/// Samples in a step of each rank.
inline constexpr int kBatchSize = 64;

/// A model with a batch of its own, drawn from a seed: forward() is the loss.
class Workload : public torch::nn::Module {
 public:
  virtual torch::Tensor forward() = 0;
};

/// "convnet": the net of examples/02_mnist_ddp. "mlp": four Linear(2048, 2048) with ReLU between
/// them, whose gradients are 64 MiB. Weights are the same on each rank, the batch is not.
std::shared_ptr<Workload> make_workload(const std::string& model, int rank);

}  // namespace bench
