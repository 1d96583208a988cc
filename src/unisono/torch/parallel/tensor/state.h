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

// The state of a divided model, in the form of the state of the whole model: names and shapes equal
// those of the same model of torch::nn layers. State saved by some number of ranks can therefore be
// loaded on any other number of ranks, and into the torch::nn model. The functions below take
// placed_tensors(*model) or placed_optimizer_state().

/// Returns this rank's argument of checkpoint::save_checkpoint() or Saver, which are called
/// together with the other ranks of the tensors' group: the ranks of a replica, if there are
/// several replicas. `common` holds additional tensors that are the same on all of these ranks
/// (parts_to_save()).
///
/// If a group that contains several such groups saves, for example the stages of a pipeline, each
/// rank passes the parts without StateParts::common, which differ.
///
/// A collective operation: the blocks of a tensor with several blocks are joined first.
///
/// Throws Error(kInvalidArgument) for tensors of different groups, and the errors of
/// unisono::parts_to_save().
[[nodiscard]] StateParts parts_to_save(ProcessGroup& group,
                                       const std::vector<PlacedTensor>& tensors,
                                       const TensorState& common = {});

/// Reads this rank's parts of a checkpoint's tensors, for load_module_state(). Other parts are not
/// read.
///
///     checkpoint::Reader reader("checkpoints");
///     load_module_state(*model, parallel::read_parts(reader, placed_tensors(*model), "model."));
///
/// `prefix` is the prefix of the names in the checkpoint. For a tensor with several names, one of
/// the names suffices. Throws the errors of the reader, and Error(kInvalidArgument) for a tensor
/// that is missing or has another shape than the whole.
[[nodiscard]] TensorState read_parts(checkpoint::Reader& reader,
                                     const std::vector<PlacedTensor>& tensors,
                                     const std::string& prefix = "");

/// Returns the whole tensors on every rank, for save_state() to one file. Tensors that are not
/// divided share the model's memory. A collective operation.
[[nodiscard]] TensorState gather_state(const std::vector<PlacedTensor>& tensors);

/// Returns this rank's parts of whole tensors that every rank has, for example from load_state() or
/// from a model of torch::nn layers. Entries that match no tensor are kept unchanged;
/// load_module_state() refuses such entries.
///
/// Throws Error(kInvalidArgument) for a shape other than the shape of the whole.
[[nodiscard]] TensorState parts_of_state(const TensorState& whole,
                                         const std::vector<PlacedTensor>& tensors);

/// Returns optimizer_state(). A state tensor with the shape of its parameter has the placement of
/// the parameter.
[[nodiscard]] std::vector<PlacedTensor> placed_optimizer_state(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

/// Reads this rank's parts of a checkpoint's optimizer state below `prefix`, as saved from
/// placed_optimizer_state(), for load_optimizer_state(). Throws the errors of read_parts().
[[nodiscard]] TensorState read_optimizer_parts(checkpoint::Reader& reader,
                                               const torch::nn::Module& module,
                                               const std::string& prefix = "");

/// Returns the tensors with `prefix` before the names, for a checkpoint that holds both model and
/// optimizer.
[[nodiscard]] std::vector<PlacedTensor> with_prefix(const std::string& prefix,
                                                    std::vector<PlacedTensor> tensors);

}  // namespace unisono::parallel
