#pragma once

#include <string>

#include "unisono/comm/process_group.h"
#include "unisono/pipeline/layer_costs.h"
#include "unisono/torch.h"

#include "options.h"

namespace imdb {

/// Measures every layer of the model on the first chunk of the batch. Returns the mean over the
/// ranks of `world`.
///
/// A collective operation.
unisono::pipeline::LayerCosts measure_layers(const Options& options,
                                             unisono::ProcessGroup& world,
                                             const unisono::BatchTensors& batch);

/// Returns a table of time, bubble and memory of a step: planned by the costs of the layers, and
/// measured.
///
/// A collective operation of the pipeline's ranks. Trains no parameter.
std::string compare_with_plan(const unisono::pipeline::LayerCosts& costs,
                              const unisono::BatchTensors& batch,
                              unisono::parallel::Pipeline& model,
                              unisono::ProcessGroup& pipe);

/// Returns a table of the last step's time by stage, and the factor by which the pipeline is faster
/// than one rank with the whole model. The text is empty on ranks other than rank 0 of the
/// pipeline, which makes a whole model for the comparison.
///
/// A collective operation of the pipeline's ranks.
std::string describe_gain(const Options& options,
                          const unisono::BatchTensors& batch,
                          unisono::parallel::Pipeline& model,
                          unisono::ProcessGroup& pipe);

}  // namespace imdb
