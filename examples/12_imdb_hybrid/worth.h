#pragma once

#include <string>

#include <torch/nn/modules/container/sequential.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "tensors.h"

namespace imdb {

/// Whether the last step was worth its pipeline, and why not, in comparison with what the whole
/// batch takes on one rank: as text, on rank 0 of the pipeline. A collective operation; `net` is
/// the whole model. Leaves the gradients undefined.
std::string is_pipeline_worth_it(unisono::parallel::Pipeline& model,
                                 unisono::ProcessGroup& pipe,
                                 torch::nn::Sequential net,
                                 const Batch& batch);

}  // namespace imdb
