#include "models.h"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace unisono::testing {

ConvNetImpl::ConvNetImpl()
    : conv(register_module("conv", torch::nn::Conv2d(1, 4, 3))),
      hidden(register_module("hidden", torch::nn::Linear(4 * 5 * 5, 16))),
      head(register_module("head", torch::nn::Linear(16, 10))) {}

torch::Tensor ConvNetImpl::forward(const torch::Tensor& images) {
  torch::Tensor x = torch::max_pool2d(torch::relu(conv(images)), 2);
  x = torch::relu(hidden(x.flatten(1)));
  return torch::log_softmax(head(x), 1);
}

Sample make_sample(int step, int shard, std::int64_t batch_size, torch::Dtype dtype) {
  auto generator =
      torch::make_generator<at::CPUGeneratorImpl>(static_cast<std::uint64_t>(1000 * step + shard));
  return {torch::randn({batch_size, 1, 12, 12}, generator, dtype),
          torch::randint(10, {batch_size}, generator, torch::kLong)};
}

Sample join(const std::vector<Sample>& samples) {
  std::vector<torch::Tensor> images;
  std::vector<torch::Tensor> labels;
  for (const Sample& sample : samples) {
    images.push_back(sample.images);
    labels.push_back(sample.labels);
  }
  return {torch::cat(images), torch::cat(labels)};
}

ConvNet make_seeded_net() {
  static const ConvNet kNet = [] {
    torch::manual_seed(7);
    return ConvNet();
  }();
  return clone_of(kNet);
}

ConvNet clone_of(const ConvNet& model) {
  ConvNet copy;
  const std::vector<torch::Tensor> from = model->parameters();
  const std::vector<torch::Tensor> to = copy->parameters();
  copy->to(from.front().scalar_type());
  const torch::NoGradGuard no_grad;
  for (std::size_t i = 0; i < to.size(); ++i) {
    to[i].copy_(from[i]);
  }
  return copy;
}

}  // namespace unisono::testing
