#include "models.h"

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/container/modulelist.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/transformerlayer.h>
#include <torch/nn/options/transformerlayer.h>
#include <torch/utils.h>

namespace bench {
namespace {

constexpr std::uint64_t kWeightSeed = 1;
constexpr std::uint64_t kBatchSeed = 100;

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return torch::nll_loss(torch::log_softmax(scores, 1), labels);
}

// Linear layers of equal width.
class Layers : public Model {
 public:
  Layers(int n_layers, int width, bool with_bias) : width_(width) {
    for (int i = 0; i < n_layers; ++i) {
      layers_.push_back(register_module(
          "layer" + std::to_string(i),
          torch::nn::Linear(torch::nn::LinearOptions(width, width).bias(with_bias))));
    }
  }

  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& labels) override {
    torch::Tensor x = input;
    for (torch::nn::Linear& layer : layers_) {
      x = torch::relu(layer(x));
    }
    return loss_of(x, labels);
  }

 private:
  [[nodiscard]] Batch draw_batch(int batch_size) const override {
    const torch::Tensor input = torch::randn({batch_size, width_});
    return {.input = input, .labels = torch::randint(width_, {batch_size}, torch::kLong)};
  }

  int width_;
  std::vector<torch::nn::Linear> layers_;
};

class Cnn : public Model {
 public:
  Cnn()
      : conv1_(register_module("conv1", torch::nn::Conv2d(1, 32, 3))),
        conv2_(register_module("conv2", torch::nn::Conv2d(32, 64, 3))),
        fc1_(register_module("fc1", torch::nn::Linear(9216, 128))),
        fc2_(register_module("fc2", torch::nn::Linear(128, 10))) {
    for (const torch::nn::Conv2d& conv : {conv1_, conv2_}) {
      conv->weight.set_data(conv->weight.detach().contiguous(torch::MemoryFormat::ChannelsLast));
    }
  }

  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& labels) override {
    torch::Tensor x = torch::relu(conv1_(input));
    x = torch::relu(torch::max_pool2d(conv2_(x), 2));
    x = torch::relu(fc1_(torch::flatten(x, 1)));
    return loss_of(fc2_(x), labels);
  }

 private:
  [[nodiscard]] Batch draw_batch(int batch_size) const override {
    const torch::Tensor images = torch::randn({batch_size, 1, 28, 28});
    return {.input = images.contiguous(torch::MemoryFormat::ChannelsLast),
            .labels = torch::randint(10, {batch_size}, torch::kLong)};
  }

  torch::nn::Conv2d conv1_;
  torch::nn::Conv2d conv2_;
  torch::nn::Linear fc1_;
  torch::nn::Linear fc2_;
};

class Transformer : public Model {
 public:
  Transformer()
      : embedding_(register_module("embedding", torch::nn::Embedding(kTokens, kWidth))),
        head_(register_module("head", torch::nn::Linear(kWidth, 2))) {
    const auto options =
        torch::nn::TransformerEncoderLayerOptions(kWidth, 4).dim_feedforward(512).dropout(0);
    for (int i = 0; i < 2; ++i) {
      layers_.push_back(register_module("encoder" + std::to_string(i),
                                        torch::nn::TransformerEncoderLayer(options)));
    }
  }

  torch::Tensor forward(const torch::Tensor& input, const torch::Tensor& labels) override {
    torch::Tensor x = embedding_(input.t());
    for (torch::nn::TransformerEncoderLayer& layer : layers_) {
      x = layer(x);
    }
    return loss_of(head_(x.mean(0)), labels);
  }

 private:
  [[nodiscard]] Batch draw_batch(int batch_size) const override {
    const torch::Tensor tokens = torch::randint(kTokens, {kLength, batch_size}, torch::kLong);
    return {.input = tokens.t(), .labels = torch::randint(2, {batch_size}, torch::kLong)};
  }

  static constexpr int kTokens = 10000;
  static constexpr int kWidth = 128;
  static constexpr int kLength = 64;

  torch::nn::Embedding embedding_;
  std::vector<torch::nn::TransformerEncoderLayer> layers_;
  torch::nn::Linear head_;
};

}  // namespace

void Model::use_batch(int number, int batch_size) {
  const auto [place, is_new] = drawn_.try_emplace({number, batch_size});
  if (is_new) {
    torch::manual_seed(kBatchSeed + static_cast<std::uint64_t>(number));
    place->second = draw_batch(batch_size);
  }
  batch_ = place->second;
}

void Model::use_joined_batches(int n, int batch_size) {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> labels;
  for (int number = 0; number < n; ++number) {
    use_batch(number, batch_size);
    inputs.push_back(batch_.input);
    labels.push_back(batch_.labels);
  }
  batch_ = {.input = torch::cat(inputs), .labels = torch::cat(labels)};
}

std::vector<std::string> model_names() {
  return {"mlp", "cnn", "transformer", "many"};
}

std::shared_ptr<Model> make_model(const std::string& name) {
  torch::manual_seed(kWeightSeed);
  if (name == "mlp") {
    return std::make_shared<Layers>(4, 2048, false);
  }
  if (name == "cnn") {
    return std::make_shared<Cnn>();
  }
  if (name == "transformer") {
    return std::make_shared<Transformer>();
  }
  if (name == "many") {
    return std::make_shared<Layers>(1000, 32, true);
  }
  throw std::invalid_argument("there is no model " + name);
}

int default_batch_size(const std::string& name) {
  return name == "transformer" ? 32 : 64;
}

}  // namespace bench
