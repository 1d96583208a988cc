#pragma once

#include <torch/nn/modules/activation.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/conv.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/pooling.h>

constexpr int kFeatures = 40;
constexpr int kSpeakers = 6;

/// Logits of the speakers for features of [batch, kFeatures, frames].
inline torch::nn::Sequential make_speaker_net() {
  return torch::nn::Sequential(torch::nn::BatchNorm1d(kFeatures),
                               torch::nn::Conv1d(kFeatures, 64, 5),
                               torch::nn::BatchNorm1d(64),
                               torch::nn::ReLU(),
                               torch::nn::Conv1d(torch::nn::Conv1dOptions(64, 64, 3).dilation(2)),
                               torch::nn::BatchNorm1d(64),
                               torch::nn::ReLU(),
                               torch::nn::AdaptiveAvgPool1d(1),
                               torch::nn::Flatten(),
                               torch::nn::Linear(64, kSpeakers));
}
