#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/checkpoint/tensor_box.h"
#include "unisono/comm/process_group.h"

namespace torch::nn {
class Module;
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

}  // namespace unisono::parallel
