#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/module.h>

namespace bench {

/// Samples along the first dimension of both.
struct Batch {
  torch::Tensor input;
  torch::Tensor labels;
};

/// A model to train. forward() returns the loss of a constant batch, which is drawn from a seed.
class Model : public torch::nn::Module {
 public:
  /// Selects a batch of a rank or a shard. Each batch is drawn once.
  void use_batch(int number, int batch_size);

  /// Selects the concatenation of the batches 0 .. n - 1.
  void use_joined_batches(int n, int batch_size);

  torch::Tensor forward() { return forward(batch_.input, batch_.labels); }

  virtual torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& labels) = 0;

  [[nodiscard]] const Batch& batch() const { return batch_; }

 private:
  [[nodiscard]] virtual Batch draw_batch(int batch_size) const = 0;

  std::map<std::pair<int, int>, Batch> drawn_;
  Batch batch_;
};

/// "mlp": four Linear(2048, 2048) without bias, each with ReLU; 64 MiB of gradients. "cnn": the net
/// of examples/02_mnist_ddp without dropout. "transformer": an embedding of 10,000 x 128, two
/// encoder layers, a mean over 64 tokens, Linear(128, 2). "many": 1,000 x Linear(32, 32).
std::vector<std::string> model_names();

/// Returns a model with the same weights on all ranks. Throws std::invalid_argument for an unknown
/// name.
std::shared_ptr<Model> make_model(const std::string& name);

/// Returns the number of samples of a step if the caller does not choose a number.
int default_batch_size(const std::string& name);

}  // namespace bench
