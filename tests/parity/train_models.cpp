// train_models INPUT OUTPUT: trains models on two ranks. INPUT contains their weights and each
// rank's data. OUTPUT receives the results for compare_training.py. Both files have the format
// safetensors.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>

#include <torch/nn/functional/loss.h>
#include <torch/nn/functional/pooling.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/optim/sgd.h>
#include <torch/types.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/ddp/distributed_data_parallel.h"

#include "rank_threads.h"

namespace {

using namespace unisono;
using Group = std::shared_ptr<ProcessGroup>;

constexpr int kWorldSize = 2;
constexpr int kSteps = 20;

struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl()
      : conv(register_module("conv", torch::nn::Conv2d(1, 4, 3))),
        head(register_module("head", torch::nn::Linear(100, 10))) {}

  torch::Tensor forward(const torch::Tensor& x) {
    return head(torch::max_pool2d(torch::relu(conv(x)), 2).flatten(1));
  }

  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear head{nullptr};
};

struct MlpImpl : torch::nn::Module {
  MlpImpl()
      : hidden(register_module("hidden", torch::nn::Linear(24, 32))),
        head(register_module("head", torch::nn::Linear(32, 10))) {}

  torch::Tensor forward(const torch::Tensor& x) { return head(torch::tanh(hidden(x))); }

  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
};

// The first word determines which layers a pass uses: rank 0's steps use even and odd layers, and
// rank 1's steps only odd layers. No rank uses `spare`.
struct TextNetImpl : torch::nn::Module {
  explicit TextNetImpl(bool is_sparse)
      : words(register_module(
            "words", torch::nn::Embedding(torch::nn::EmbeddingOptions(50, 8).sparse(is_sparse)))),
        even(register_module("even", torch::nn::Linear(8, 8))),
        odd(register_module("odd", torch::nn::Linear(8, 8))),
        spare(register_module("spare", torch::nn::Linear(8, 8))),
        head(register_module("head", torch::nn::Linear(8, 10))) {}

  torch::Tensor forward(const torch::Tensor& text) {
    const torch::Tensor x = words(text).mean(1);
    const bool is_odd = text.reshape({-1})[0].item<std::int64_t>() % 2 == 1;
    return head(torch::tanh(is_odd ? odd(x) : even(x)));
  }

  torch::nn::Embedding words{nullptr};
  torch::nn::Linear even{nullptr};
  torch::nn::Linear odd{nullptr};
  torch::nn::Linear spare{nullptr};
  torch::nn::Linear head{nullptr};
};

struct TransformerImpl : torch::nn::Module {
  TransformerImpl()
      : words(register_module("words", torch::nn::Embedding(50, 16))),
        first(register_module("first", make_layer())),
        second(register_module("second", make_layer())),
        head(register_module("head", torch::nn::Linear(16, 10))) {}

  static torch::nn::TransformerEncoderLayer make_layer() {
    return torch::nn::TransformerEncoderLayer(
        torch::nn::TransformerEncoderLayerOptions(16, 4).dim_feedforward(32).dropout(0));
  }

  torch::Tensor forward(const torch::Tensor& text) {
    const torch::Tensor x = words(text.t());
    return head(second(first(x)).mean(0));
  }

  torch::nn::Embedding words{nullptr};
  torch::nn::TransformerEncoderLayer first{nullptr};
  torch::nn::TransformerEncoderLayer second{nullptr};
  torch::nn::Linear head{nullptr};
};

TORCH_MODULE(ConvNet);
TORCH_MODULE(Mlp);
TORCH_MODULE(TextNet);
TORCH_MODULE(Transformer);

class Trainer {
 public:
  Trainer(Group group, const TensorState& input, TensorState& output)
      : group_(std::move(group)), input_(input), output_(output) {}

  template <class Net>
  void run(const std::string& name,
           Net net,
           double momentum,
           const DistributedDataParallelOptions& options = {}) {
    net->to(torch::kDouble);
    // Only rank 0's values count.
    if (group_->rank() == 0) {
      load_module_state(*net, state_below(input_, name + ".start."));
    }
    DistributedDataParallel model(net, group_, options);
    torch::optim::SGD optimizer(model.parameters(),
                                torch::optim::SGDOptions(0.1).momentum(momentum));
    const std::string rank = std::to_string(group_->rank());
    const torch::Tensor x = input_.at(name + ".x." + rank);
    const torch::Tensor labels = input_.at(name + ".labels." + rank);
    for (int step = 0; step < kSteps; ++step) {
      optimizer.zero_grad();
      const torch::Tensor result = model(x[step]);
      keep(name + ".result." + std::to_string(step) + "." + rank, result);
      torch::nn::functional::cross_entropy(result, labels[step]).backward();
      keep_gradients(name + ".gradient." + std::to_string(step) + "." + rank + ".", *net);
      optimizer.step();
    }
    for (const auto& [parameter, value] : module_state(*net)) {
      keep(name + ".end." + rank + "." + parameter, value);
    }
  }

 private:
  void keep(const std::string& name, const torch::Tensor& tensor) {
    output_[name] = tensor.detach().clone();
  }

  void keep_gradients(const std::string& prefix, const torch::nn::Module& net) {
    for (const auto& item : net.named_parameters()) {
      if (const torch::Tensor& gradient = item.value().grad(); gradient.defined()) {
        keep(prefix + item.key(), gradient.to_dense());
      }
    }
  }

  Group group_;
  const TensorState& input_;
  TensorState& output_;
};

void train_all(const Group& group, const TensorState& input, TensorState& output) {
  Trainer trainer(group, input, output);
  trainer.run("conv_net", ConvNet(), 0.9);
  trainer.run("conv_net_in_small_buckets",
              ConvNet(),
              0.9,
              {.bucket_cap_mb = 1e-3, .first_bucket_cap_mb = 1e-4});
  trainer.run("mlp", Mlp(), 0.9);
  trainer.run("text_net", TextNet(false), 0.9, {.find_unused_parameters = true});
  trainer.run("sparse_text_net", TextNet(true), 0, {.find_unused_parameters = true});
  trainer.run("transformer", Transformer(), 0.9);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "usage: train_models INPUT OUTPUT\n");
    return 2;
  }
  try {
    const TensorState input = load_state(argv[1]);
    TensorState of_ranks[kWorldSize];
    testing::run_ranks(
        kWorldSize, [&](const Group& group) { train_all(group, input, of_ranks[group->rank()]); });
    TensorState output;
    for (const TensorState& of_rank : of_ranks) {
      add_state(output, "", of_rank);
    }
    save_state(argv[2], output);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
