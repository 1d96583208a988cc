#pragma once

#include <cstdint>
#include <string>

#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

#include "hybrid_options.h"
#include "tensors.h"

namespace imdb {

/// A batch of reviews of random words, as long as they may be. Replicas get batches of their own.
Batch random_batch(const HybridOptions& options,
                   const unisono::parallel::Mesh& mesh,
                   std::int64_t ntokens);

/// Writes the text into the file, or prints it where that has no name. Throws unisono::Error.
void write(const std::string& path, const std::string& text);

/// Draws the last step of the first replica, as SVG. A collective operation.
void draw(const std::string& path,
          const unisono::parallel::Mesh& mesh,
          unisono::parallel::Pipeline& model);

/// Trains `options.steps` steps on a random_batch(), and rank 0 writes an object of JSON: reviews
/// of all replicas per second, the slowest rank's median step, the bubble of the last one and the
/// most memory that a rank's activations took.
void measure(const HybridOptions& options,
             const unisono::parallel::Mesh& mesh,
             unisono::parallel::Pipeline& model,
             std::int64_t ntokens);

}  // namespace imdb
