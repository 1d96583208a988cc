#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/data/pad_to_longest.h"

namespace imdb {

struct Batch {
  at::Tensor tokens;  ///< [reviews, tokens], int64
  at::Tensor labels;  ///< [reviews], int64
};

/// A loader's batch as tensors: copies of it.
Batch as_tensors(const unisono::PaddedBatch& batch);

/// The sum of all ranks' sums, divided by that of their counts. A collective operation.
double mean_over_ranks(unisono::ProcessGroup& group, double sum, std::int64_t count);

}  // namespace imdb
