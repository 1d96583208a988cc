#pragma once

#include <string>
#include <vector>

#include "unisono/pipeline/balance.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {

/// What was measured of the layers of a model for one chunk, one after the other.
struct LayerCosts {
  std::vector<std::string> names = {};      ///< Of each layer, or none.
  std::vector<StageTimes> times = {};       ///< In milliseconds.
  std::vector<double> activation_mib = {};  ///< That the chunk keeps until its backward, or none.
  std::vector<double> gradient_mib = {};    ///< Of the layer's parameters, or none.
};

/// What the layers of each part take together.
[[nodiscard]] std::vector<StageTimes> times_of_parts(const std::vector<StageTimes>& layers,
                                                     const std::vector<LayerRange>& parts);

/// As CSV, a line for each layer: what `unisono plan pipeline --layer-times` reads. Times are
/// rounded to a tenth of a microsecond.
[[nodiscard]] std::string to_csv(const LayerCosts& layers);

}  // namespace unisono::pipeline
