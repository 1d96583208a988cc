#pragma once

#include <cstdint>
#include <string>

#include "unisono/comm/process_group.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "options.h"
#include "tensors.h"

namespace imdb {

/// Whether the last step was worth its pipeline, and why not, in comparison with what the whole
/// batch takes on one rank: as text, on rank 0 of the pipeline, which makes the whole model for it.
/// A collective operation.
std::string is_pipeline_worth_it(const Options& options,
                                 unisono::parallel::Pipeline& model,
                                 unisono::ProcessGroup& pipe,
                                 std::int64_t ntokens,
                                 const Batch& batch);

}  // namespace imdb
