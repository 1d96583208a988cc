#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/torch/checkpoint/checkpoint.h"
#include "unisono/torch/parallel/pipeline/gradients.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/tensor/named_tensor.h"
#include "unisono/torch/tensor/tensor.h"

namespace unisono::parallel {

/// The parameters and buffers of a rank's stages, under their names in the whole model.
///
/// Refers to the stages and the ties, which must outlive the object and may be filled after the
/// construction. Not thread-safe.
class PipelineState {
 public:
  PipelineState(const std::map<int, StagePart>& parts, const std::vector<Tie>& ties)
      : parts_(parts), ties_(ties) {}

  /// Returns each tensor once, even if stages share the tensor.
  [[nodiscard]] std::vector<NamedTensor> named_parameters() const;
  [[nodiscard]] std::vector<NamedTensor> named_buffers() const;

  /// Returns the defined gradients.
  [[nodiscard]] std::vector<at::Tensor> gradients() const;

  /// Returns the state of the stages. Throws Error(kInvalidArgument) for two tensors of the same
  /// name.
  [[nodiscard]] TensorState save() const;

  /// Throws Error(kInvalidArgument), without any change, for a tensor that is missing or has
  /// another type or shape.
  void load(const TensorState& state) const;

  void train(bool on) const;
  void zero_grad(bool set_to_none) const;

  /// Returns true if no earlier stage has the tied parameter.
  [[nodiscard]] bool is_first_of_tie(const PlacedParameter& place) const;

 private:
  [[nodiscard]] std::vector<std::string> names_in_whole(int stage,
                                                        const NamedTensor& parameter) const;

  const std::map<int, StagePart>& parts_;
  const std::vector<Tie>& ties_;
};

/// Makes the stages of a rank for a schedule.
using MakeParts = std::function<ModelParts(const pipeline::Schedule& schedule, int rank)>;

/// Exchanges of a pipeline with the other replicas.
struct Replicas {
  std::unique_ptr<ReplicaGradients> gradients;
  /// Broadcast from the first replica, after each step.
  std::unique_ptr<CoalescedBroadcast> buffers;
};

/// The construction of a pipeline: fills the plan and the ties, checks that all ranks agree, and
/// distributes initial values.
///
/// Lives during the construction, on one thread. The functions are collective operations unless
/// noted, called in the order of declaration. An error of a rank is thrown on every rank.
class PipelineSetup {
 public:
  PipelineSetup(const PipelineOptions& options, PipelineLayout& plan, std::vector<Tie>& ties)
      : options_(options), plan_(plan), ties_(ties) {}

  /// Makes the schedule, the routes and the stages of this rank, and compares the plan with the
  /// other ranks.
  void make_plan(std::shared_ptr<ProcessGroup> group, const MakeParts& make_parts);

  /// Returns the groups with ranks that wait for this rank in a step, each once: the pipeline's,
  /// the replicas', the stages'. Local.
  [[nodiscard]] std::vector<std::shared_ptr<ProcessGroup>> collect_groups();

  /// Copies the values of the first replica to all replicas.
  [[nodiscard]] Replicas join_replicas(const PipelineState& state,
                                       const std::map<int, std::vector<at::Tensor>>& trained);

  /// Copies the values of each tie's first parameter to the other parameters of the tie.
  void share_tied_values();

 private:
  void check_alike(const std::string& problem) const;
  void share_problem(const std::string& problem) const;
  [[nodiscard]] Replicas try_to_join_replicas(
      const PipelineState& state, const std::map<int, std::vector<at::Tensor>>& trained);

  const PipelineOptions& options_;
  PipelineLayout& plan_;
  std::vector<Tie>& ties_;
};

}  // namespace unisono::parallel
