#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/nn/modules/container/sequential.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/tensor/divided_model.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::parallel {

/// Determines the random numbers of a chunk, independently of the schedule and of the cut into
/// stages.
struct ChunkRandom {
  std::uint64_t seed;
  std::int64_t step;
  std::int64_t chunk;  ///< Number of the chunk, counted over all replicas.
};

/// A module of a stage. The random generator is seeded for each layer.
struct Layer {
  int number;  ///< Number in the whole model.
  std::shared_ptr<torch::nn::Module> module;
  std::function<Tensors(const Tensors&)> forward;
  std::string prefix;
};

/// A stage on its rank: layers, parameters and buffers. Holds the modules. Used on the thread of
/// the step.
class StagePart {
 public:
  /// A user-defined stage, treated as one layer.
  StagePart(int number, Stage stage);

  /// A stage of the layers first, ..., end - 1 of `model`.
  StagePart(int number, const torch::nn::Sequential& model, int begin, int end);

  [[nodiscard]] int number() const { return number_; }

  /// Returns the device of the parameters and buffers; the CPU for a stage without tensors.
  [[nodiscard]] at::Device device() const;

  /// Runs the layers. Throws Error(kInvalidArgument) for outputs that differ from the announced
  /// sizes.
  [[nodiscard]] Tensors forward(const Tensors& inputs, const ChunkRandom& random) const;

  // Names refer to the whole model. Each tensor appears once.
  [[nodiscard]] const std::vector<NamedTensor>& parameters() const { return parameters_; }

  /// The parameters with the placement on the ranks of the layers' groups.
  [[nodiscard]] const std::vector<PlacedTensor>& placed_parameters() const { return placed_; }

  [[nodiscard]] const std::vector<NamedTensor>& buffers() const { return buffers_; }

  void train(bool on) const;

  /// Groups of divided layers and of SyncBatchNorm, each once. All ranks of such a group compute
  /// chunks in the same order.
  [[nodiscard]] const std::vector<std::shared_ptr<ProcessGroup>>& groups() const { return groups_; }

  /// Returns true if the first layer works in place, according to the last recorded pass; true
  /// before the first pass.
  [[nodiscard]] bool may_change_inputs() const { return may_change_inputs_; }

  void note_inputs(bool are_changed) const { may_change_inputs_ = are_changed; }

  /// Returns true if any parameter requires a gradient.
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

/// A parameter of a stage.
struct PlacedParameter {
  int stage;
  std::string name;

  friend auto operator<=>(const PlacedParameter&, const PlacedParameter&) = default;
};

/// Parameters of several stages that act as a single parameter, in the order of the stages.
using Tie = std::vector<PlacedParameter>;

/// The stages of a rank, and the ties of the whole model.
struct ModelParts {
  std::map<int, StagePart> stages;  ///< By number.
  std::vector<Tie> ties;
};

/// Returns the schedule that the options select, checked. Throws Error(kInvalidArgument).
[[nodiscard]] pipeline::Schedule schedule_of(const PipelineOptions& options, int n_ranks);

/// Returns the inputs of the batch for each stage. Throws Error(kInvalidArgument).
[[nodiscard]] std::vector<std::vector<int>> batch_inputs_of(const PipelineOptions& options,
                                                            int n_stages);

// Return the stages of this rank and the ties. Both functions throw Error(kInvalidArgument) for
// stages, layers or ties that contradict the schedule.

[[nodiscard]] ModelParts cut_model(const torch::nn::Sequential& model,
                                   const pipeline::Schedule& schedule,
                                   int rank,
                                   const PipelineOptions& options);
[[nodiscard]] ModelParts make_parts(const MakeStage& make_stage,
                                    const pipeline::Schedule& schedule,
                                    int rank,
                                    const PipelineOptions& options);

}  // namespace unisono::parallel
