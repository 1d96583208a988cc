#pragma once

#include <cstdint>
#include <string>

#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "hybrid_options.h"
#include "tensors.h"

namespace imdb {

/// What the layers of the model take for a chunk of this batch.
struct MeasuredLayers {
  Batch batch;
  unisono::pipeline::LayerCosts costs;
};

/// Measures them on all ranks at once, as they compute in a step, each with the whole model for so
/// long; the mean over ranks goes into the file `options.layer_times`, for `unisono plan pipeline`.
/// A collective operation.
MeasuredLayers measure_layers(const HybridOptions& options,
                              const unisono::parallel::Mesh& mesh,
                              std::int64_t ntokens);

/// What a plan by these layers says of a step on their batch, and what such steps came to: as text,
/// on every rank. A collective operation; leaves the gradients undefined.
std::string compare_with_plan(const MeasuredLayers& layers,
                              unisono::parallel::Pipeline& model,
                              unisono::ProcessGroup& pipe);

}  // namespace imdb
