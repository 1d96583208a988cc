#pragma once

#include <string>
#include <vector>

#include "unisono/pipeline/simulate.h"

namespace unisono::cli {

/// What was measured of the layers of a model, one after the other.
struct LayerCosts {
  std::vector<pipeline::StageTimes> times;  ///< Of a chunk, in milliseconds.
  std::vector<double> activation_mib;       ///< That a chunk keeps until its backward, or empty.
};

/// Reads a CSV file with a line for each layer. Its header names the columns: forward_ms and
/// backward_ms, and, if known, weight_ms (the part of backward that computes weight gradients, else
/// half of it) and activation_mib. Others are passed over.
///
/// Throws Error: kNotFound, kSystem, kCorruptData for what is no CSV; kInvalidArgument, with file,
/// line and column, for a number that is none, or negative, or a file without layers.
[[nodiscard]] LayerCosts read_layer_costs(const std::string& path);

}  // namespace unisono::cli
