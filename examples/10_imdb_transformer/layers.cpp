#include "layers.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/Functions.h>
#include <torch/utils.h>
#include <unisono/torch.h>

#include "options.h"
#include "transformer.h"

namespace imdb {

using unisono::parallel::ParallelTransformerEncoderLayerOptions;

DividedLayerImpl::DividedLayerImpl(const Options& options,
                                   const std::shared_ptr<unisono::ProcessGroup>& group)
    : layer(register_module(
          "layer",
          unisono::parallel::ParallelTransformerEncoderLayer(
              ParallelTransformerEncoderLayerOptions{.d_model = options.d_model,
                                                     .nhead = options.n_head,
                                                     .dim_feedforward = options.d_hid,
                                                     .dropout = options.dropout,
                                                     .norm_first = true},
              group))) {}

torch::Tensor DividedLayerImpl::forward(const torch::Tensor& x) {
  const std::int64_t d_model = x.size(-1) - 1;
  const torch::Tensor marks = x.narrow(-1, d_model, 1);
  const torch::Tensor is_padding = marks.squeeze(-1).eq(0);
  // Encoder layers need [tokens, reviews, features].
  const torch::Tensor features = layer->forward(x.narrow(-1, 0, d_model).transpose(0, 1),
                                                {.attention = {}, .padding = is_padding});
  return torch::cat({features.transpose(0, 1), marks}, -1);
}

torch::nn::Sequential make_divided_net(const Options& options,
                                       std::int64_t ntokens,
                                       const std::shared_ptr<unisono::ProcessGroup>& group) {
  torch::manual_seed(static_cast<std::uint64_t>(options.seed));
  torch::nn::Sequential net(Encoder(ntokens, options.d_model, options.dropout));
  for (int i = 0; i < options.nlayers; ++i) {
    net->push_back(DividedLayer(options, group));
  }
  net->push_back(Decoder(options.d_model, options.dropout));
  return net;
}

PlacedTensors own_tensors(const torch::nn::Sequential& net,
                          const unisono::parallel::Pipeline& model) {
  const unisono::TensorState kept = model.state();
  PlacedTensors tensors = unisono::parallel::placed_tensors(*net);
  std::erase_if(tensors, [&](const auto& placed) { return !kept.contains(placed.name); });
  return tensors;
}

void load_tensors(unisono::ProcessGroup& world,
                  const std::string& folder,
                  const PlacedTensors& tensors,
                  unisono::parallel::Pipeline& model) {
  unisono::checkpoint::Reader reader(unisono::checkpoint::resolve(world, folder));
  model.load_state(unisono::parallel::read_parts(reader, tensors));
}

void save_tensors(const unisono::parallel::Mesh& mesh,
                  const std::string& folder,
                  const PlacedTensors& tensors,
                  std::int64_t step) {
  const int replica = mesh.coordinate("data");
  const auto group = mesh.world()->split(replica, mesh.world()->rank());
  if (replica == 0) {
    const auto state = unisono::parallel::parts_to_save(*mesh.group("tensor"), tensors);
    unisono::checkpoint::save_checkpoint(*group, folder, step, state.parts);
  }
  mesh.world()->barrier();  // No replica leaves before the checkpoint is complete.
}

}  // namespace imdb
