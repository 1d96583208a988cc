#include "workload.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/functional/loss.h>
#include <torch/nn/modules/linear.h>
#include <torch/utils.h>

#include "net.h"

namespace bench {
namespace {

constexpr std::uint64_t kWeightSeed = 1;
constexpr std::uint64_t kBatchSeed = 100;

void seed_batch(int rank) {
  torch::manual_seed(kBatchSeed + static_cast<std::uint64_t>(rank));
}

class Convnet : public Workload {
 public:
  explicit Convnet(int rank) {
    torch::manual_seed(kWeightSeed);
    net_ = register_module("net", mnist::Net());
    seed_batch(rank);
    images_ = torch::randn({kBatchSize, 1, 28, 28});
    labels_ = torch::randint(10, {kBatchSize}, torch::kLong);
  }

  torch::Tensor forward() override { return torch::nll_loss(net_(images_), labels_); }

 private:
  mnist::Net net_{nullptr};
  torch::Tensor images_;
  torch::Tensor labels_;
};

class Mlp : public Workload {
 public:
  explicit Mlp(int rank) {
    constexpr int kWidth = 2048;
    constexpr int kLayers = 4;
    torch::manual_seed(kWeightSeed);
    for (int i = 0; i < kLayers; ++i) {
      layers_.push_back(
          register_module("layer" + std::to_string(i), torch::nn::Linear(kWidth, kWidth)));
    }
    seed_batch(rank);
    input_ = torch::randn({kBatchSize, kWidth});
    target_ = torch::randn({kBatchSize, kWidth});
  }

  torch::Tensor forward() override {
    torch::Tensor x = layers_[0](input_);
    for (std::size_t i = 1; i < layers_.size(); ++i) {
      x = layers_[i](torch::relu(x));
    }
    return torch::mse_loss(x, target_);
  }

 private:
  std::vector<torch::nn::Linear> layers_;
  torch::Tensor input_;
  torch::Tensor target_;
};

}  // namespace

std::shared_ptr<Workload> make_workload(const std::string& model, int rank) {
  if (model == "mlp") {
    return std::make_shared<Mlp>(rank);
  }
  return std::make_shared<Convnet>(rank);
}

}  // namespace bench
