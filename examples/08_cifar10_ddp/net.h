#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

/// Logits of 10 classes for images of [batch, 3, 32, 32].
inline torch::nn::Sequential make_net() {
  const auto conv = [](int in, int out) {
    return torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1));
  };
  const torch::nn::MaxPool2d pool(2);
  return torch::nn::Sequential(conv(3, 32),
                               torch::nn::ReLU(),
                               pool,  //
                               conv(32, 64),
                               torch::nn::ReLU(),
                               pool,
                               conv(64, 64),
                               torch::nn::ReLU(),
                               pool,
                               torch::nn::Flatten(),
                               torch::nn::Linear(1024, 10));
}
