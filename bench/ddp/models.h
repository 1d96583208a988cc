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

/// What is trained: forward() is the loss of a batch that is always the same, drawn from a seed.
class Model : public torch::nn::Module {
 public:
  /// Goes on with that batch: of a rank, or of a shard. Each is drawn once.
  void use_batch(int number, int batch_size);

  /// Goes on with batches 0 .. n - 1 as one.
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

/// With the same weights whoever asks. Throws std::invalid_argument for a name that is none.
std::shared_ptr<Model> make_model(const std::string& name);

/// Samples of a step where the caller has no wish.
int default_batch_size(const std::string& name);

}  // namespace bench
