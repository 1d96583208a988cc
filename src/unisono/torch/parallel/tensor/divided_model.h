#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/checkpoint/reader.h"
#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/checkpoint/checkpoint.h"

namespace torch::nn {
class Module;
}

namespace torch::optim {
class Optimizer;
}

namespace unisono::parallel {

/// Describes the part of a whole tensor that each rank of a group has.
///
/// Along `dim`, the whole consists of `n_blocks` consecutive blocks of equal size (three in
/// attention's joint weight of queries, keys and values; otherwise 1). Each block is divided into
/// one chunk per rank. Rank r has chunk r of each block, in the order of the blocks.
struct Split {
  int dim = 0;
  int n_blocks = 1;

  friend bool operator==(const Split&, const Split&) = default;
};

/// Returns the shape of a whole tensor with parts of shape `part` on `world_size` ranks.
[[nodiscard]] std::vector<std::int64_t> whole_shape(at::IntArrayRef part,
                                                    const Split& split,
                                                    int world_size);

/// Returns the boxes of a rank's part in the whole, one for each block.
///
/// Throws Error(kInvalidArgument) for a shape that is not divisible in this way.
[[nodiscard]] std::vector<checkpoint::Box> boxes_of_part(const std::vector<std::int64_t>& whole,
                                                         const Split& split,
                                                         int rank,
                                                         int world_size);

/// Returns a copy of a rank's part of the whole.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole,
                                 const Split& split,
                                 int rank,
                                 int world_size);

/// Returns the whole, joined from the parts of all ranks in the order of ranks.
[[nodiscard]] at::Tensor join_parts(const std::vector<at::Tensor>& parts, const Split& split);

/// Distribution of one parameter over the ranks of a group.
struct Placement {
  /// std::nullopt: every rank has the whole parameter.
  std::optional<Split> split = std::nullopt;
  /// Every rank has the whole parameter, but the gradient covers only the rank's part of the
  /// sequence: see sum_partial_gradients().
  bool has_partial_gradient = false;
};

/// Describes the placement of a module's own parameters (not those of child modules). A second base
/// class, beside torch::nn::Module, of the layers of this folder and of similar layers. Shares the
/// group with other layers. Placements do not change after construction.
class ParallelLayer {
 public:
  virtual ~ParallelLayer() = default;
  ParallelLayer(const ParallelLayer&) = default;
  ParallelLayer& operator=(const ParallelLayer&) = default;
  ParallelLayer(ParallelLayer&&) = default;
  ParallelLayer& operator=(ParallelLayer&&) = default;

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// Placements by parameter name. Parameters without an entry are whole and the same on every
  /// rank.
  [[nodiscard]] const std::map<std::string, Placement>& placements() const { return placements_; }

 protected:
  /// Throws Error(kInvalidArgument) for a null group. `layer` is the name in messages.
  ParallelLayer(const std::string& layer, std::shared_ptr<ProcessGroup> group);

  /// Sets the placement of a parameter. Called by constructors of derived classes.
  void place(const std::string& parameter, const Placement& placement) {
    placements_.insert_or_assign(parameter, placement);
  }

  /// Returns `size` divided by the number of ranks. Throws Error(kInvalidArgument), with layer,
  /// size and ranks, unless `size` is a positive multiple of the number of ranks. `what` names the
  /// size in the message.
  [[nodiscard]] std::int64_t share_of(const std::string& what, std::int64_t size) const;

  /// Throws RefusedCall, with layer and rank, unless the last dimension of `input` has `size`
  /// elements.
  void check_last_dimension(const at::Tensor& input, std::int64_t size) const;

  [[nodiscard]] const std::string& layer() const { return layer_; }

 private:
  std::string layer_;
  std::shared_ptr<ProcessGroup> group_;  // shared with the other layers
  std::map<std::string, Placement> placements_;
};

/// A parameter or buffer of a model, and its placement.
struct PlacedTensor {
  std::string name;  ///< Name in the model: "layers.0.linear1.weight".
  at::Tensor tensor;
  Placement placement;
  /// Null for parameters of modules that are not a ParallelLayer.
  std::shared_ptr<ProcessGroup> group;
};

/// Returns all parameters of the module and its children, each once, in the module's order.
[[nodiscard]] std::vector<PlacedTensor> placed_parameters(const torch::nn::Module& module);

/// Returns the tensors of a checkpoint: the parameters of each module, followed by its buffers. A
/// tensor with several names appears under each name.
[[nodiscard]] std::vector<PlacedTensor> placed_tensors(const torch::nn::Module& module);

/// Completes the gradients of parameters that every rank holds whole but that received a part of
/// the sequence only (norms and biases under sequence parallelism): replaces each gradient by the
/// sum over the ranks, with one all_reduce per element type. Call once per step, after backward()
/// (of DistributedDataParallel, too) and before gradients are read (by clipping or the optimizer's
/// step): a second call would add the gradients again. A collective operation, even without such
/// parameters. Parameters without a gradient are skipped; the skipped parameters must be the same
/// on every rank.
///
/// Throws Error(kInvalidArgument) for gradients that are sparse.
void sum_partial_gradients(const torch::nn::Module& module);

/// Options of clip_grad_norm(), equal on all ranks.
struct ClipOptions {
  double norm_type = 2;  ///< Type of the norm; may be infinity.
  /// true: an infinite or NaN norm is an error.
  bool error_if_nonfinite = false;
  /// Ranks with other layers of the same model, for example the stages of a pipeline. Null: no such
  /// ranks.
  std::shared_ptr<ProcessGroup> others = {};
};

/// torch::nn::utils::clip_grad_norm_() for the whole model: multiplies the gradients by max_norm /
/// norm if that is less than 1. Returns the norm before clipping. Elements that only one rank has
/// and elements that all ranks have count once each, so the norm is that of the whole model on any
/// number of ranks. A collective operation; call sum_partial_gradients() first.
///
/// As in torch, a NaN norm turns all gradients into NaNs, and an infinite norm into zeros and NaNs.
/// With `error_if_nonfinite`, every rank throws Error(kInvalidArgument) instead and gradients stay
/// unchanged. Throws Error(kInvalidArgument) for a negative norm or type, and for sparse gradients.
double clip_grad_norm(const torch::nn::Module& module,
                      double max_norm,
                      const ClipOptions& options = {});

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
