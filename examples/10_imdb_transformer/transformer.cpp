#include "transformer.h"

#include <cmath>
#include <cstdint>

#include <ATen/Functions.h>
#include <torch/nn/functional/loss.h>
#include <torch/nn/init.h>
#include <torch/utils.h>
#include <unisono/datasets.h>

#include "options.h"

namespace imdb {
namespace {

torch::Tensor features_of(const torch::Tensor& x) {
  return x.narrow(-1, 0, x.size(-1) - 1);
}

torch::Tensor marks_of(const torch::Tensor& x) {
  return x.narrow(-1, x.size(-1) - 1, 1);
}

// Returns sines and cosines of the positions, [n_tokens, d_model].
torch::Tensor positions(std::int64_t n_tokens, std::int64_t d_model) {
  const torch::Tensor steps = torch::arange(d_model / 2, torch::kFloat);
  const torch::Tensor rates = torch::exp(steps * (-2 * std::log(10'000.0) / double(d_model)));
  const torch::Tensor angles = torch::arange(n_tokens, torch::kFloat).unsqueeze(1) * rates;
  return torch::cat({angles.sin(), angles.cos()}, 1);
}

}  // namespace

EncoderImpl::EncoderImpl(std::int64_t ntokens, std::int64_t d_model, double dropout)
    : d_model(d_model),
      embedding(register_module("embedding", torch::nn::Embedding(ntokens, d_model))),
      dropout(register_module("dropout", torch::nn::Dropout(dropout))) {
  // With small initial values, the learned differences soon exceed the random differences.
  torch::nn::init::normal_(embedding->weight, 0, 0.1);
}

torch::Tensor EncoderImpl::forward(const torch::Tensor& tokens) {
  const torch::Tensor x = embedding(tokens) + 0.1 * positions(tokens.size(1), d_model);
  const torch::Tensor marks = tokens.ne(unisono::datasets::Vocabulary::kPad).to(torch::kFloat);
  return torch::cat({dropout(x), marks.unsqueeze(2)}, 2);
}

LayerImpl::LayerImpl(std::int64_t d_model, std::int64_t n_head, std::int64_t d_hid, double dropout)
    : n_head(n_head),
      norm1(register_module("norm1", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d_model})))),
      query_key_value(register_module("query_key_value", torch::nn::Linear(d_model, 3 * d_model))),
      projection(register_module("projection", torch::nn::Linear(d_model, d_model))),
      norm2(register_module("norm2", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d_model})))),
      linear1(register_module("linear1", torch::nn::Linear(d_model, d_hid))),
      linear2(register_module("linear2", torch::nn::Linear(d_hid, d_model))),
      dropout(register_module("dropout", torch::nn::Dropout(dropout))) {}

torch::Tensor LayerImpl::forward(const torch::Tensor& x) {
  const torch::Tensor marks = marks_of(x);
  torch::Tensor features = features_of(x);
  const std::int64_t d_head = features.size(2) / n_head;
  const auto heads = query_key_value(norm1(features))
                         .view({x.size(0), x.size(1), 3, n_head, d_head})
                         .permute({2, 0, 3, 1, 4})
                         .unbind();
  // Padding gets no attention.
  const torch::Tensor mask = marks.ne(0).transpose(1, 2).unsqueeze(1);
  const torch::Tensor seen = at::scaled_dot_product_attention(heads[0], heads[1], heads[2], mask)
                                 .transpose(1, 2)
                                 .flatten(2);
  features = features + dropout(projection(seen));
  features = features + dropout(linear2(torch::relu(linear1(norm2(features)))));
  return torch::cat({features, marks}, 2);
}

DecoderImpl::DecoderImpl(std::int64_t d_model, double dropout)
    : norm(register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({d_model})))),
      dropout(register_module("dropout", torch::nn::Dropout(dropout))),
      scores(register_module("scores", torch::nn::Linear(d_model, 2))) {}

torch::Tensor DecoderImpl::forward(const torch::Tensor& x) {
  const torch::Tensor marks = marks_of(x);
  const torch::Tensor mean = (norm(features_of(x)) * marks).sum(1) / marks.sum(1);
  return scores(dropout(mean));
}

torch::Tensor loss_of(const torch::Tensor& scores, const torch::Tensor& labels) {
  return torch::nn::functional::cross_entropy(scores, labels);
}

torch::nn::Sequential make_net(const Options& options, std::int64_t ntokens) {
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  torch::nn::Sequential net(Encoder(ntokens, options.d_model, options.dropout));
  for (int i = 0; i < options.nlayers; ++i) {
    net->push_back(Layer(options.d_model, options.n_head, options.d_hid, options.dropout));
  }
  net->push_back(Decoder(options.d_model, options.dropout));
  return net;
}

}  // namespace imdb
