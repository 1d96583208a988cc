#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>
#include <unisono/torch.h>

#include "options.h"

namespace imdb {

/// A layer of the transformer whose heads and features are divided among the ranks of a group.
struct DividedLayerImpl : torch::nn::Module {
  DividedLayerImpl(const Options& options, const std::shared_ptr<unisono::ProcessGroup>& group);
  /// `x` is a tensor of [reviews, tokens, d_model + 1], as for the modules of transformer.h.
  torch::Tensor forward(const torch::Tensor& x);

  unisono::parallel::ParallelTransformerEncoderLayer layer;
};

TORCH_MODULE(DividedLayer);

/// Returns encoder, divided layers and decoder. Ranks of the group have equal encoders and
/// decoders.
torch::nn::Sequential make_divided_net(const Options& options,
                                       std::int64_t ntokens,
                                       const std::shared_ptr<unisono::ProcessGroup>& group);

/// The parts of tensors on this rank, and the places of these parts in the complete tensors.
using PlacedTensors = std::vector<unisono::parallel::PlacedTensor>;

/// Returns this rank's parts of the tensors of the layers that the pipeline keeps on this rank.
PlacedTensors own_tensors(const torch::nn::Sequential& net,
                          const unisono::parallel::Pipeline& model);

/// Reads the tensors from a checkpoint of any mesh into the model. A collective operation.
void load_tensors(unisono::ProcessGroup& world,
                  const std::string& folder,
                  const PlacedTensors& tensors,
                  unisono::parallel::Pipeline& model);

/// Saves the tensors of the first replica. A collective operation of the whole mesh.
void save_tensors(const unisono::parallel::Mesh& mesh,
                  const std::string& folder,
                  const PlacedTensors& tensors,
                  std::int64_t step);

}  // namespace imdb
