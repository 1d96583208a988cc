#pragma once

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/torch/parallel/pipeline/stage_part.h"

namespace unisono::parallel {

/// A parameter of a stage.
struct PlacedParameter {
  int stage;
  std::string name;

  friend auto operator<=>(const PlacedParameter&, const PlacedParameter&) = default;
};

/// Parameters of several stages that are one, in the order of the stages.
using Tie = std::vector<PlacedParameter>;

/// The gradients of this rank's stages in a step. Those of tied parameters are kept apart by
/// stage, also where stages of one rank share the tensor, so that their sum does not depend on who
/// has which stage.
class StageGradients {
 public:
  StageGradients(const std::map<int, StagePart>& parts, const std::vector<Tie>& ties);

  /// What is trained of each stage.
  [[nodiscard]] const std::map<int, std::vector<at::Tensor>>& parameters() const {
    return parameters_;
  }

  void begin();
  void before_backward(int stage);
  void after_backward(int stage);

  /// Of a stage, one for each parameter.
  [[nodiscard]] std::vector<at::Tensor> of_stage(int stage) const;
  void set(int stage, const std::vector<at::Tensor>& gradients);

  /// Those of a tied parameter. Undefined where there is none.
  [[nodiscard]] at::Tensor of(const PlacedParameter& tied) const;
  void set_sum(const PlacedParameter& tied, const at::Tensor& sum);

  /// Adds the sums to what there was before the step.
  void end();

 private:
  struct Tied {
    PlacedParameter place;
    at::Tensor parameter;
    at::Tensor gradient = {};  // While it is not the parameter's.
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
  std::vector<Before> before_;  // Of each tied tensor, once.
};

}  // namespace unisono::parallel
