#pragma once

#include <cstdint>

#include "unisono/data/collating_loader.h"
#include "unisono/data/pad_to_longest.h"
#include "unisono/torch/parallel/mesh/mesh.h"
#include "unisono/torch/parallel/pipeline/pipeline.h"

namespace imdb {

using Loader = unisono::CollatingLoader<unisono::PaddedBatch>;

/// The share of the loader's reviews that the model understands, on every rank: each replica tests
/// its share of them. A collective operation; leaves the model in the mode of eval().
double accuracy(const unisono::parallel::Mesh& mesh,
                unisono::parallel::Pipeline& model,
                Loader& loader,
                std::int64_t n_reviews);

}  // namespace imdb
