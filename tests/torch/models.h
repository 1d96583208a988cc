#pragma once

#include <cstdint>
#include <vector>

#include <torch/torch.h>

namespace unisono::testing {

/// A small convnet for 12 x 12 images and 10 classes, without dropout.
struct ConvNetImpl : torch::nn::Module {
  ConvNetImpl();
  torch::Tensor forward(const torch::Tensor& images);

  torch::nn::Conv2d conv{nullptr};
  torch::nn::Linear hidden{nullptr};
  torch::nn::Linear head{nullptr};
};

TORCH_MODULE(ConvNet);

/// Images and labels of one rank's share of one step; the same whoever asks.
struct Sample {
  torch::Tensor images;
  torch::Tensor labels;
};

Sample make_sample(int step, int shard, std::int64_t batch_size, torch::Dtype dtype);

/// Both samples one after the other.
Sample join(const std::vector<Sample>& samples);

/// Of a model or of DistributedDataParallel around one.
template <class Model>
torch::Tensor loss_of(Model& model, const Sample& sample) {
  return torch::nll_loss(model(sample.images), sample.labels);
}

/// A new model with the same values whoever asks: ranks that are threads share the random numbers
/// that others are made of.
ConvNet make_seeded_net();

/// A copy with parameters of its own.
ConvNet clone_of(const ConvNet& model);

}  // namespace unisono::testing
