#pragma once

#include <string>

#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "hybrid_options.h"

namespace imdb {

/// Trains `options.steps` steps on one batch of reviews of random words, as long as they may be,
/// and rank 0 writes an object of JSON: reviews of all replicas per second, the slowest rank's
/// median step, the bubble of the last one and the most memory that a rank's activations took.
void measure(const HybridOptions& options,
             const unisono::parallel::Mesh& mesh,
             unisono::parallel::Pipeline& model,
             std::int64_t ntokens);

}  // namespace imdb
