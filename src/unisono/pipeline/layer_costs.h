#pragma once

#include <optional>
#include <string>
#include <vector>

#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/timeline.h"

namespace unisono::pipeline {

/// Measured costs of each layer of a model for one chunk. Optional columns are empty vectors.
struct LayerCosts {
  std::vector<std::string> names = {};  ///< Optional.
  std::vector<StageTimes> times = {};   ///< In milliseconds.
  /// Activations that are kept until the chunk's backward. Optional.
  std::vector<double> activation_mib = {};
  std::vector<double> gradient_mib = {};  ///< Gradients of the layer's parameters. Optional.
};

/// Returns CSV with a header and a line for each layer. Times are rounded to a tenth of a
/// microsecond.
[[nodiscard]] std::string to_csv(const LayerCosts& layers);

/// A part of a model: layers begin, ..., end - 1.
struct LayerRange {
  int begin;
  int end;

  [[nodiscard]] int count() const { return end - begin; }

  friend bool operator==(const LayerRange&, const LayerRange&) = default;
};

/// Cuts layers into `n_parts` parts, or into a part for each layer if there are fewer layers. Sizes
/// differ by one at most, and the larger parts come first.
///
/// Throws Error(kInvalidArgument) for numbers below 1.
[[nodiscard]] std::vector<LayerRange> cut_evenly(int n_layers, int n_parts);

/// Cuts layers into `n_parts` non-empty parts with the smallest possible largest sum of `costs`
/// (times or bytes). Among equal cuts the last parts are the longest. Takes time proportional to
/// the square of the number of layers, times the number of parts.
///
/// Throws Error(kInvalidArgument) for fewer layers than parts, and for a cost that is negative or
/// not finite.
[[nodiscard]] std::vector<LayerRange> cut_by_cost(const std::vector<double>& costs, int n_parts);

/// Returns the sum of the costs of each part.
[[nodiscard]] std::vector<double> sums_of_parts(const std::vector<double>& costs,
                                                const std::vector<LayerRange>& parts);

/// Returns the sum of the times of each part's layers.
[[nodiscard]] std::vector<StageTimes> times_of_parts(const std::vector<StageTimes>& layers,
                                                     const std::vector<LayerRange>& parts);

/// Figures of a step, planned or measured.
struct StepFigures {
  double step_ms = 0;
  double bubble = 0;                    ///< 0 to 1.
  std::vector<double> memory_mib = {};  ///< Peak of activations and gradients on each rank.
};

/// Predicts a step of a valid schedule from the costs of layers, which are cut into its stages by
/// `parts`. The step begins without gradients; the gradients of a stage appear with its first
/// backward.
[[nodiscard]] StepFigures predict_step(const Schedule& schedule,
                                       const LayerCosts& layers,
                                       const std::vector<LayerRange>& parts,
                                       const SimulationOptions& options = {});

/// Returns a table of the planned figures, the measured figures, and the error of the plan: a
/// difference in points for the bubble, a percentage of the planned figure for the others.
[[nodiscard]] std::string compare(const StepFigures& planned, const StepFigures& measured);

/// Facts about a run that a measured step does not contain.
struct Circumstances {
  /// Number of cores or GPUs of all ranks together.
  int n_devices = 1;
  /// Time of a step of the whole batch on a single device, without chunks and without a pipeline.
  std::optional<double> whole_batch = {};
};

/// Mean times of a chunk in a stage, and the stage's share of all computation.
struct StageCost {
  int stage;
  int rank;
  double forward;
  double backward;
  double share;
};

/// Speed-up of a pipeline and the parts of the step's time, in the unit of the timeline.
struct Gain {
  std::vector<StageCost> stages;
  double step = 0;    ///< Measured.
  double serial = 0;  ///< All actions in sequence.
  double alone = 0;   ///< Time without a pipeline: of the whole batch if known, otherwise `serial`.
  double ideal = 0;   ///< Time of the same actions with free messages and devices.
  /// Time of a step that a simulation with mean times per stage predicts.
  double planned = 0;
  double bubble = 0;  ///< Measured, 0 to 1. `ideal_bubble` belongs to the ideal step.
  double ideal_bubble = 0;
  std::vector<std::string> reasons;  ///< Sentences with the causes that limit the speed.

  /// Returns the speed-up over `alone`: of the measured step, and of the ideal step.
  [[nodiscard]] double factor() const { return alone / step; }

  [[nodiscard]] double best_factor() const { return alone / ideal; }

  /// Returns the relative excess over the plan: 0.1 is a tenth.
  [[nodiscard]] double off_plan() const { return step / planned - 1; }
};

/// Analyses a measured step, which must have all actions of `schedule` on the right ranks.
///
/// Throws Error(kInvalidArgument) for missing or other actions, and for fewer than one device.
[[nodiscard]] Gain gain_of(const Schedule& schedule,
                           const Timeline& measured,
                           const Circumstances& circumstances);

/// Describes the gain: a table of the stages, the bubbles, and a sentence that states whether the
/// pipeline is faster on this machine, can be faster, or cannot, with the reasons. `unit` is the
/// unit of the times: "ms".
[[nodiscard]] std::string describe(const Gain& gain, const std::string& unit);

}  // namespace unisono::pipeline
