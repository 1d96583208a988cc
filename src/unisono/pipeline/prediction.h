#pragma once

#include <string>
#include <vector>

#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {

/// A step in numbers, planned or measured.
struct StepFigures {
  double step_ms = 0;
  double bubble = 0;                    ///< 0 to 1.
  std::vector<double> memory_mib = {};  ///< Of each rank at most: activations and gradients.
};

/// What a step of the schedule, which must be valid, takes by the costs of layers that are cut into
/// its stages as `parts` says. All parameters begin the step without a gradient; a stage's come
/// with its first backward.
[[nodiscard]] StepFigures predict_step(const Schedule& schedule,
                                       const LayerCosts& layers,
                                       const std::vector<LayerRange>& parts,
                                       const SimulationOptions& options = {});

/// As text: what was planned, what it came to, and by how much the plan was off. That is a part of
/// what was planned, and of the bubble a difference.
[[nodiscard]] std::string compare(const StepFigures& planned, const StepFigures& measured);

}  // namespace unisono::pipeline
