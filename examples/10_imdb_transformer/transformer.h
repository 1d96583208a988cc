#pragma once

#include <cstdint>

#include <torch/nn/modules/container/sequential.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "options.h"

namespace imdb {

// The modules pass a tensor of [reviews, tokens, d_model + 1]: the features of each token, then a
// mark, 1 for a token and 0 for padding.

/// Embeds token numbers, [reviews, tokens], and adds the encoding of the positions.
struct EncoderImpl : torch::nn::Module {
  EncoderImpl(std::int64_t ntokens, std::int64_t d_model, double dropout);
  torch::Tensor forward(const torch::Tensor& tokens);

  std::int64_t d_model;
  torch::nn::Embedding embedding;
  torch::nn::Dropout dropout;
};

/// Attention and two linear layers, each with normalized input and a residual connection.
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

/// Computes the scores of the two labels, [reviews, 2], from the mean over the tokens of a review.
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

/// Returns the mean cross entropy of a batch.
torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels);

/// Returns encoder, layers and decoder, equal on all ranks.
torch::nn::Sequential make_net(const Options& options, std::int64_t ntokens);

}  // namespace imdb
