#pragma once

#include <chrono>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/parallel/pipeline/stage_part.h"
#include "unisono/torch/parallel/pipeline/step_run.h"
#include "unisono/torch/parallel/pipeline/transfers.h"

namespace unisono::parallel {

/// The gradients of this rank's stages in a step. Gradients of tied parameters are stored
/// separately for each stage, even if stages of a rank share the tensor, so that the sum does not
/// depend on the placement of the stages. Not thread-safe.
class StageGradients {
 public:
  StageGradients(const std::map<int, StagePart>& parts, const std::vector<Tie>& ties);

  /// The parameters of each stage that require a gradient.
  [[nodiscard]] const std::map<int, std::vector<at::Tensor>>& parameters() const {
    return parameters_;
  }

  void begin();
  /// Called before a backward pass of a stage. Exposes the stage's own gradients of tied
  /// parameters.
  void before_backward(int stage);
  /// Called after a backward pass of a stage. Stores the stage's own gradients of tied parameters.
  void after_backward(int stage);

  /// Returns the gradients of a stage, one per trained parameter.
  [[nodiscard]] std::vector<at::Tensor> of_stage(int stage) const;
  /// Replaces the gradients of a stage, for example by means over replicas.
  void set(int stage, const std::vector<at::Tensor>& gradients);

  /// Returns the gradient of a tied parameter, or an undefined tensor.
  [[nodiscard]] at::Tensor of(const PlacedParameter& tied) const;
  /// Stores the sum of all stages' gradients of a tied parameter, for end().
  void set_sum(const PlacedParameter& tied, const at::Tensor& sum);

  /// Adds the sums to the gradients from before the step.
  void end();

 private:
  struct Tied {
    PlacedParameter place;
    at::Tensor parameter;
    at::Tensor gradient = {};  // Gradient outside the backward passes of the stage.
  };

  struct Before {
    at::Tensor parameter;
    at::Tensor gradient;
    at::Tensor sum = {};
  };

  [[nodiscard]] const Tied* find(int stage, const at::Tensor& parameter) const;
  [[nodiscard]] Before& before(const at::Tensor& parameter);

  std::map<int, std::vector<at::Tensor>> parameters_;
  std::vector<Tied> tied_;
  std::vector<Before> before_;  // One for each tied tensor.
};

/// Returns the number of message slots for tied parameters.
[[nodiscard]] std::size_t n_tied_slots(const std::vector<Tie>& ties);

/// The transfers of tied parameters, and their first slot.
struct TiedMessages {
  Transfers& transfers;
  std::size_t first_slot = 0;
};

/// Sets each tied parameter of this rank to the values of the tie's first stage. A collective
/// operation. Returns an error text for a parameter of another type or shape, otherwise "".
[[nodiscard]] std::string copy_first_values(const PipelineLayout& plan,
                                            const std::vector<Tie>& ties,
                                            const TiedMessages& messages);

/// Sets the gradient of each tied parameter to the sum of the stages' gradients, added in the order
/// of the stages. A collective operation.
void sum_tied_gradients(const PipelineLayout& plan,
                        const std::vector<Tie>& ties,
                        const TiedMessages& messages,
                        StageGradients& gradients);

/// Averages gradients over replicas. The average of a stage starts when the stage's gradients are
/// complete, in the same order on all replicas. Owned by the Pipeline; used by the thread that runs
/// the step. Throws communication errors.
class ReplicaGradients {
 public:
  /// `order`: the stages in the order in which the schedule completes them. `parameters`: the
  /// trained parameters of each stage.
  ReplicaGradients(std::shared_ptr<ProcessGroup> group,
                   std::vector<int> order,
                   const std::map<int, std::vector<at::Tensor>>& parameters,
                   std::optional<std::chrono::milliseconds> timeout);

  /// Adds the complete gradients of a stage: a tensor for each parameter, undefined if the
  /// parameter has no gradient.
  void add(int stage, std::vector<at::Tensor> gradients);

  /// Waits for all averages. Returns the means of each stage; undefined where no replica has a
  /// gradient.
  [[nodiscard]] std::map<int, std::vector<at::Tensor>> finish();

 private:
  /// The gradients of all parameters of a type, in a single tensor.
  struct Flat {
    at::Tensor tensor;  // A flag per gradient (1: defined), then the gradients.
    std::vector<std::size_t> parameters;
  };

  struct OfStage {
    std::vector<Flat> flats;
    std::optional<std::vector<at::Tensor>> gradients = {};
  };

  struct Launched {
    std::string label;
    Work work;
  };

  void launch(int stage);

  std::shared_ptr<ProcessGroup> group_;
  std::vector<int> order_;
  std::map<int, std::vector<at::Tensor>> parameters_;
  std::optional<std::chrono::milliseconds> timeout_;
  std::map<int, OfStage> stages_;
  std::size_t n_launched_ = 0;
  std::vector<Launched> launched_;
};

}  // namespace unisono::parallel
