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

/// Images and labels of one rank's share in one step, equal on all ranks.
struct Sample {
  torch::Tensor images;
  torch::Tensor labels;
};

Sample make_sample(int step, int shard, std::int64_t batch_size, torch::Dtype dtype);

/// Returns the concatenation of the samples.
Sample join(const std::vector<Sample>& samples);

/// Returns the loss of a model or of a DistributedDataParallel.
template <class Model>
torch::Tensor loss_of(Model& model, const Sample& sample) {
  return torch::nll_loss(model(sample.images), sample.labels);
}

/// Returns a new model with the same values on all ranks. The values do not come from the
/// generator, because ranks in threads share that generator.
ConvNet make_seeded_net();

/// Returns a copy with its own parameters.
ConvNet clone_of(const ConvNet& model);

}  // namespace unisono::testing
