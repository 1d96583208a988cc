#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/stage.h"
#include "unisono/torch/parallel/tensor/placement.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

/// Whence a chunk's random numbers come. They don't depend on who computes it when, nor on which
/// layers are in a stage together.
struct ChunkRandom {
  std::uint64_t seed;
  std::int64_t step;
  std::int64_t chunk;  ///< Over all replicas.
};

/// A module of a stage that has random numbers of its own.
struct Layer {
  int number;  ///< In the whole model.
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
  std::string prefix;
};

/// A stage as its rank has it.
class StagePart {
 public:
  /// A stage of the user's own, which is one layer.
  StagePart(int number, Stage stage);

  /// Layers first, ..., end - 1 of `model`.
  StagePart(int number, const torch::nn::Sequential& model, int begin, int end);

  [[nodiscard]] int number() const { return number_; }

  /// Throws Error(kInvalidArgument) for outputs that are not as announced.
  [[nodiscard]] Tensors forward(const Tensors& inputs, const ChunkRandom& random) const;

  // Under their names in the whole model; each tensor once.
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// The same with how they lie on the ranks of their groups.
  [[nodiscard]] const std::vector<PlacedTensor>& placed_parameters() const { return placed_; }

  [[nodiscard]] const std::vector<NamedTensor>& buffers() const { return buffers_; }

  void train(bool on) const;

  /// In which its modules exchange something, each once: those of divided layers and of
  /// SyncBatchNorm. All their ranks have to do their chunks in the same order.
  [[nodiscard]] const std::vector<std::shared_ptr<ProcessGroup>>& groups() const { return groups_; }

  /// Whether its first layer works in place, as a pass has seen; true before the first one.
  [[nodiscard]] bool may_change_inputs() const { return may_change_inputs_; }

  void note_inputs(bool are_changed) const { may_change_inputs_ = are_changed; }

  /// Whether any parameter is trained.
  [[nodiscard]] bool is_trained() const;

 private:
  struct OwnLayer {
    Layer layer;
    bool may_draw;
  };

  void add(Layer layer);
  void check_outputs(const Tensors& outputs) const;

  int number_;
  std::vector<OwnLayer> layers_;
  std::vector<std::vector<std::int64_t>> output_sizes_;
  std::vector<NamedTensor> parameters_;
  std::vector<PlacedTensor> placed_;
  std::vector<NamedTensor> buffers_;
  std::vector<std::shared_ptr<ProcessGroup>> groups_;
  mutable bool may_change_inputs_ = true;
};

}  // namespace unisono::parallel
