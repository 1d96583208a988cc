#pragma once

#include <string>

#include "unisono/pipeline/layer_costs.h"

namespace unisono::cli {

/// Reads a CSV file with a line for each layer, as pipeline::to_csv() writes it. Its header names
/// the columns: forward_ms and backward_ms, and, if known, weight_ms (the part of backward that
/// computes weight gradients, else half of it) and activation_mib. Others are passed over.
///
/// Throws Error: kNotFound, kSystem, kCorruptData for what is no CSV; kInvalidArgument, with file,
/// line and column, for a number that is none, or negative, or a file without layers.
[[nodiscard]] pipeline::LayerCosts read_layer_costs(const std::string& path);

}  // namespace unisono::cli
