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

/// Which part of a whole tensor each rank of a group has.
///
/// Along `dim` the whole is `n_blocks` blocks of equal size, one after the other (three in
/// attention's joint weight of queries, keys and values; else one). Of each block rank r has the
/// r-th of as many equal chunks as there are ranks; they lie one after the other in its part.
struct Split {
  int dim = 0;
  int n_blocks = 1;

  friend bool operator==(const Split&, const Split&) = default;
};

/// The shape of the whole of which each of `world_size` ranks has a part of this shape.
[[nodiscard]] std::vector<std::int64_t> whole_shape(at::IntArrayRef part,
                                                    const Split& split,
                                                    int world_size);

/// Where a rank's part lies in the whole: a box for each block.
///
/// Throws Error(kInvalidArgument) for a shape that can't be divided so.
[[nodiscard]] std::vector<checkpoint::Box> boxes_of_part(const std::vector<std::int64_t>& whole,
                                                         const Split& split,
                                                         int rank,
                                                         int world_size);

/// A rank's part of the whole, in memory of its own.
[[nodiscard]] at::Tensor part_of(const at::Tensor& whole,
                                 const Split& split,
                                 int rank,
                                 int world_size);

/// The whole, of the parts of all ranks in order of rank.
[[nodiscard]] at::Tensor join_parts(const std::vector<at::Tensor>& parts, const Split& split);

/// How one parameter lies on the ranks of a group.
struct Placement {
  /// Nothing: every rank has all of it.
  std::optional<Split> split = std::nullopt;
  /// Every rank has all of it, but its gradient is of the rank's part of the sequence: see
  /// sum_partial_gradients().
  bool has_partial_gradient = false;
};

/// What a module says of the parameters that are its own, not its children's: a second base class,
/// beside torch::nn::Module, of the layers of this folder and of others like them.
class ParallelLayer {
 public:
  virtual ~ParallelLayer() = default;
  ParallelLayer(const ParallelLayer&) = default;
  ParallelLayer& operator=(const ParallelLayer&) = default;
  ParallelLayer(ParallelLayer&&) = default;
  ParallelLayer& operator=(ParallelLayer&&) = default;

  [[nodiscard]] const std::shared_ptr<ProcessGroup>& group() const { return group_; }

  /// By the parameter's name; those that it leaves out are whole and the same on every rank.
  [[nodiscard]] const std::map<std::string, Placement>& placements() const { return placements_; }

 protected:
  /// Throws Error(kInvalidArgument) without a group; `layer` is its name in messages.
  ParallelLayer(const std::string& layer, std::shared_ptr<ProcessGroup> group);

  void place(const std::string& parameter, const Placement& placement) {
    placements_.insert_or_assign(parameter, placement);
  }

  /// `size` divided by the number of ranks. Throws Error(kInvalidArgument), with layer, size and
  /// ranks, unless it is a positive multiple of that; `what` is the size's name.
  [[nodiscard]] std::int64_t share_of(const std::string& what, std::int64_t size) const;

  /// Throws Error(kInvalidArgument), with layer and rank, unless the last dimension of `input` has
  /// `size` elements.
  void check_last_dimension(const at::Tensor& input, std::int64_t size) const;

  [[nodiscard]] const std::string& layer() const { return layer_; }

 private:
  std::string layer_;
  std::shared_ptr<ProcessGroup> group_;  // shared with the other layers
  std::map<std::string, Placement> placements_;
};

/// A parameter or buffer of a model, and how it lies.
struct PlacedTensor {
  std::string name;  ///< In the model: "layers.0.linear1.weight".
  at::Tensor tensor;
  Placement placement;
  std::shared_ptr<ProcessGroup> group;  ///< Null for those of modules that are no ParallelLayer.
};

/// All parameters of the module and of what it consists of, each once, in its order.
[[nodiscard]] std::vector<PlacedTensor> placed_parameters(const torch::nn::Module& module);

/// What checkpoints have: the parameters and, behind those of each module, its buffers. A tensor of
/// several names is there under each.
[[nodiscard]] std::vector<PlacedTensor> placed_tensors(const torch::nn::Module& module);

}  // namespace unisono::parallel
