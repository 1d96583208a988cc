#pragma once

#include <string>
#include <vector>

#include "unisono/checkpoint/reader.h"
#include "unisono/torch/checkpoint/tensor_state.h"
#include "unisono/torch/parallel/tensor/placement.h"

namespace torch::nn {
class Module;
}

namespace torch::optim {
class Optimizer;
}

namespace unisono::parallel {

// A divided model's state, as that of the whole: names and shapes are those of the same model of
// torch::nn's layers, so that what some number of ranks have saved loads on any other, and into
// that model. What follows is called with placed_tensors(*model), or placed_optimizer_state().

/// What this rank passes to checkpoint::save_checkpoint() or Saver, together with the other ranks
/// of the tensors' group: the ranks of one replica, where there are several. `common` is what all
/// of them have alike besides (parts_to_save()).
///
/// Where a group of several such groups saves, the stages of a pipeline, say, each passes its parts
/// without StateParts::common, which differ.
///
/// A collective operation: tensors of several blocks are put together, one after the other.
///
/// Throws Error(kInvalidArgument) for tensors of different groups, and as unisono::parts_to_save().
[[nodiscard]] StateParts parts_to_save(ProcessGroup& group,
                                       const std::vector<PlacedTensor>& tensors,
                                       const TensorState& common = {});

/// This rank's parts of a checkpoint's tensors, for load_module_state(): reads no others.
///
///     checkpoint::Reader reader("checkpoints");
///     load_module_state(*model, parallel::read_parts(reader, placed_tensors(*model), "model."));
///
/// The names in the checkpoint have `prefix` before them; of a tensor of several names one
/// suffices. Throws Error as the reader does, and kInvalidArgument where a tensor is not there or
/// has another shape than the whole.
[[nodiscard]] TensorState read_parts(checkpoint::Reader& reader,
                                     const std::vector<PlacedTensor>& tensors,
                                     const std::string& prefix = "");

/// The whole tensors, on every rank: for save_state(), one file. Those that are not divided share
/// the model's memory. A collective operation.
[[nodiscard]] TensorState gather_state(const std::vector<PlacedTensor>& tensors);

/// This rank's parts of whole tensors, which every rank has: of load_state(), say, or of the state
/// of a model of torch::nn's layers. What is none of the tensors stays as it is, and is refused by
/// load_module_state().
///
/// Throws Error(kInvalidArgument) for a shape that is not the whole's.
[[nodiscard]] TensorState parts_of_state(const TensorState& whole,
                                         const std::vector<PlacedTensor>& tensors);

/// optimizer_state(), each tensor placed as its parameter where it has its shape.
[[nodiscard]] std::vector<PlacedTensor> placed_optimizer_state(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

/// This rank's parts of what a checkpoint has below `prefix` of placed_optimizer_state(), for
/// load_optimizer_state(). Throws Error as read_parts().
[[nodiscard]] TensorState read_optimizer_parts(checkpoint::Reader& reader,
                                               const torch::nn::Module& module,
                                               const std::string& prefix = "");

/// Puts `prefix` before the names: a checkpoint of model and optimizer has both.
[[nodiscard]] std::vector<PlacedTensor> with_prefix(const std::string& prefix,
                                                    std::vector<PlacedTensor> tensors);

}  // namespace unisono::parallel
