// The images of MNIST and two nets for the classification.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>
#include <unisono/datasets.h>
#include <unisono/unisono.h>

namespace examples {

/// The folder of Debian's package dataset-fashion-mnist.
inline constexpr const char* kFashionMnist = "/usr/share/datasets/fashion-mnist";

/// Returns the first `limit` images of a split of MNIST, or all if `limit` is 0. Throws
/// unisono::Error.
inline std::shared_ptr<const unisono::datasets::ImageDataset> load_mnist(
    const std::string& folder, unisono::datasets::Split split, std::int64_t limit = 0) {
  constexpr std::int64_t kSide = 28;
  unisono::datasets::LabeledImages images = unisono::datasets::load_mnist(folder, split);
  if (images.height != kSide || images.width != kSide) {
    throw unisono::Error(unisono::ErrorCode::kInvalidArgument,
                         folder + ": the net takes images of 28 x 28, these are " +
                             std::to_string(images.height) + " x " + std::to_string(images.width));
  }
  if (limit > 0 && limit < images.size()) {
    images.pixels.resize(static_cast<std::size_t>(limit * kSide * kSide));
    images.labels.resize(static_cast<std::size_t>(limit));
  }
  return std::make_shared<const unisono::datasets::ImageDataset>(
      std::move(images), unisono::datasets::mnist_normalize());
}

/// The net of PyTorch's MNIST example: log-probabilities of 10 classes for images of
/// [batch, 1, 28, 28].
struct ConvNetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    // oneDNN computes the second convolution faster if the channels of a pixel are adjacent.
    x = torch::relu(conv1(x)).contiguous(torch::MemoryFormat::ChannelsLast);
    // relu(max_pool(x)) has the values of max_pool(relu(x)), from a quarter of the elements.
    x = torch::relu(torch::max_pool2d(conv2(x), 2));
    x = torch::flatten(dropout1(x), 1);
    x = dropout2(torch::relu(fc1(x)));
    return torch::log_softmax(fc2(x), 1);
  }

  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 32, 3))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(32, 64, 3))};
  torch::nn::Dropout dropout1{register_module("dropout1", torch::nn::Dropout(0.25))};
  torch::nn::Dropout dropout2{register_module("dropout2", torch::nn::Dropout(0.5))};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(9216, 128))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(128, 10))};
};

TORCH_MODULE(ConvNet);

/// The net of Kubeflow's example: log-probabilities of 10 classes for images of [batch, 1, 28, 28].
struct SmallNetImpl : torch::nn::Module {
  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(torch::max_pool2d(conv1(x), 2));
    x = torch::relu(torch::max_pool2d(drop(conv2(x)), 2));
    x = torch::dropout(torch::relu(fc1(x.flatten(1))), 0.5, is_training());
    return torch::log_softmax(fc2(x), 1);
  }

  torch::nn::Conv2d conv1{register_module("conv1", torch::nn::Conv2d(1, 10, 5))};
  torch::nn::Conv2d conv2{register_module("conv2", torch::nn::Conv2d(10, 20, 5))};
  torch::nn::Dropout2d drop{register_module("conv2_drop", torch::nn::Dropout2d())};
  torch::nn::Linear fc1{register_module("fc1", torch::nn::Linear(320, 50))};
  torch::nn::Linear fc2{register_module("fc2", torch::nn::Linear(50, 10))};
};

TORCH_MODULE(SmallNet);

}  // namespace examples
