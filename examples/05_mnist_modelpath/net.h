#pragma once

#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

/// The net of Kubeflow's example: log-probabilities of 10 classes for images of [batch, 1, 28, 28].
struct NetImpl : torch::nn::Module {
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

TORCH_MODULE(Net);
