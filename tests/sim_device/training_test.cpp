#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <torch/torch.h>

#include "sim_device/quiet_end.h"
#include "sim_device/test_tensors.h"

namespace sim {
namespace {

namespace F = torch::nn::functional;

constexpr int kSteps = 20;

struct ConvNet : torch::nn::Module {
  ConvNet() {
    first =
        register_module("first", torch::nn::Conv2d(torch::nn::Conv2dOptions(1, 8, 3).padding(1)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    second =
        register_module("second", torch::nn::Conv2d(torch::nn::Conv2dOptions(8, 16, 3).padding(1)));
    head = register_module("head", torch::nn::Linear(16 * 9, 10));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto pool = F::MaxPool2dFuncOptions(2);
    x = F::max_pool2d(torch::relu(norm(first(x))), pool);
    x = F::max_pool2d(torch::relu(second(x)), pool);
    return head(x.flatten(1));
  }

  torch::nn::Conv2d first{nullptr};
  torch::nn::Conv2d second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::Linear head{nullptr};
};

struct Mlp : torch::nn::Module {
  Mlp() {
    hidden = register_module("hidden", torch::nn::Linear(144, 64));
    norm = register_module("norm", torch::nn::BatchNorm1d(64));
    dropout = register_module("dropout", torch::nn::Dropout(0.3));
    head = register_module("head", torch::nn::Linear(64, 10));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    return head(dropout(torch::relu(norm(hidden(x.flatten(1))))));
  }

  torch::nn::Linear hidden{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::nn::Linear head{nullptr};
};

struct Transformer : torch::nn::Module {
  Transformer() {
    const auto options =
        torch::nn::TransformerEncoderLayerOptions(32, 4).dim_feedforward(64).dropout(0.2);
    embedding = register_module("embedding", torch::nn::Embedding(50, 32));
    encoder = register_module("encoder",
                              torch::nn::TransformerEncoder(torch::nn::TransformerEncoderOptions(
                                  torch::nn::TransformerEncoderLayer(options), 2)));
    head = register_module("head", torch::nn::Linear(32, 10));
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor tokens =
        (x.flatten(1).slice(1, 0, 12).abs() * 10).to(torch::kLong).clamp(0, 49);
    return head(encoder(embedding(tokens).transpose(0, 1)).mean(0));
  }

  torch::nn::Embedding embedding{nullptr};
  torch::nn::TransformerEncoder encoder{nullptr};
  torch::nn::Linear head{nullptr};
};

enum class Rule { kSgd, kAdam };

std::unique_ptr<torch::optim::Optimizer> make_optimizer(Rule rule, torch::nn::Module& model) {
  if (rule == Rule::kAdam) {
    return std::make_unique<torch::optim::Adam>(model.parameters(),
                                                torch::optim::AdamOptions(1e-2));
  }
  return std::make_unique<torch::optim::SGD>(
      model.parameters(), torch::optim::SGDOptions(0.05).momentum(0.9).weight_decay(1e-3));
}

// Returns the losses, and after the last step parameters, gradients and buffers.
template <class Model>
std::vector<torch::Tensor> train(c10::Device device, Rule rule) {
  torch::manual_seed(1);
  Model model;
  model.to(device);
  const auto optimizer = make_optimizer(rule, model);
  std::vector<torch::Tensor> results;
  torch::manual_seed(2);
  auto data = at::make_generator<at::CPUGeneratorImpl>(5);
  for (int step = 0; step < kSteps; ++step) {
    const auto images = torch::randn({16, 1, 12, 12}, data);
    const auto labels = torch::randint(0, 10, {16}, data);
    optimizer->zero_grad();
    const auto loss = F::cross_entropy(model.forward(images.to(device)), labels.to(device));
    loss.backward();
    torch::nn::utils::clip_grad_norm_(model.parameters(), 1.0);
    optimizer->step();
    results.push_back(loss.detach());
  }
  for (const auto& parameter : model.parameters()) {
    results.push_back(parameter.detach());
    results.push_back(parameter.grad());
  }
  for (const auto& buffer : model.buffers()) {
    results.push_back(buffer);
  }
  return results;
}

class Training : public QuietEnd, public ::testing::WithParamInterface<Rule> {
 protected:
  // The number of threads changes the order of sums. Tasks of streams have a single thread.
  Training() { torch::set_num_threads(1); }

  template <class Model>
  static void expect_the_bits_of_the_cpu() {
    const std::vector<torch::Tensor> cpu = train<Model>(c10::kCPU, GetParam());
    const std::vector<torch::Tensor> sim = train<Model>(sim_device(1), GetParam());
    ASSERT_EQ(cpu.size(), sim.size());
    for (std::size_t i = 0; i < cpu.size(); ++i) {
      EXPECT_EQ(sim[i].device(), sim_device(1));
      EXPECT_TRUE(same_bits(cpu[i], sim[i])) << "tensor " << i << " of " << cpu.size();
    }
    EXPECT_LT(cpu[kSteps - 1].item<float>(), 10);
  }
};

TEST_P(Training, OfAConvolutionalNetHasTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu<ConvNet>();
}

TEST_P(Training, OfAnMlpWithDropoutHasTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu<Mlp>();
}

TEST_P(Training, OfATransformerHasTheBitsOfTheCpu) {
  expect_the_bits_of_the_cpu<Transformer>();
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, Training, ::testing::Values(Rule::kSgd, Rule::kAdam), [](const auto& tested) {
      return tested.param == Rule::kSgd ? std::string("Sgd") : std::string("Adam");
    });

}  // namespace
}  // namespace sim
