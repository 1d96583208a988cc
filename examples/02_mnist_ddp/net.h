#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

namespace mnist {

/// The convnet of PyTorch's MNIST example: log-probabilities of 10 classes for images of
/// [batch, 1, 28, 28].
struct NetImpl : torch::nn::Module {
  NetImpl();
  torch::Tensor forward(torch::Tensor x);

  torch::nn::Conv2d conv1;
  torch::nn::Conv2d conv2;
  torch::nn::Dropout dropout1;
  torch::nn::Dropout dropout2;
  torch::nn::Linear fc1;
  torch::nn::Linear fc2;
};

TORCH_MODULE(Net);

}  // namespace mnist
