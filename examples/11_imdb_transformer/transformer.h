#pragma once

#include <cstdint>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "options.h"

namespace imdb {

// What goes from module to module is one tensor, [reviews, tokens, d_model + 1]: of each token its
// features, and 1 where it is one, 0 where it only pads the review.

/// Numbers of tokens, [reviews, tokens], as features that know their place.
struct EncoderImpl : torch::nn::Module {
  EncoderImpl(std::int64_t ntokens, std::int64_t d_model, double dropout);
  torch::Tensor forward(const torch::Tensor& tokens);

  std::int64_t d_model;
  torch::nn::Embedding embedding;
  torch::nn::Dropout dropout;
};

/// Attention and two linear layers, each added to what it is made of, normalized.
struct LayerImpl : torch::nn::Module {
  LayerImpl(std::int64_t d_model, std::int64_t n_head, std::int64_t d_hid, double dropout);
  torch::Tensor forward(const torch::Tensor& x);

  std::int64_t n_head;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear query_key_value;
  torch::nn::Linear projection;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear linear1;
  torch::nn::Linear linear2;
  torch::nn::Dropout dropout;
};

/// Scores of the two labels, [reviews, 2], from the mean of a review's tokens.
struct DecoderImpl : torch::nn::Module {
  DecoderImpl(std::int64_t d_model, double dropout);
  torch::Tensor forward(const torch::Tensor& x);

  torch::nn::LayerNorm norm;
  torch::nn::Dropout dropout;
  torch::nn::Linear scores;
};

TORCH_MODULE(Encoder);
TORCH_MODULE(Layer);
TORCH_MODULE(Decoder);

/// The mean cross entropy of a batch's scores.
torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels);

/// Encoder, layers, decoder: equal on all ranks.
torch::nn::Sequential make_net(const Options& options, std::int64_t ntokens);

}  // namespace imdb
