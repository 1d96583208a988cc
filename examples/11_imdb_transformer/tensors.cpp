#include "tensors.h"

#include <cstdint>
#include <span>
#include <vector>

#include <ATen/ops/tensor.h>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/data/pad_to_longest.h"

namespace imdb {

Batch as_tensors(const unisono::PaddedBatch& batch) {
  return {.tokens = at::tensor(batch.tokens, at::kLong).view({batch.size(), batch.longest}),
          .labels = at::tensor(batch.labels, at::kLong)};
}

double mean_over_ranks(unisono::ProcessGroup& group, double sum, std::int64_t count) {
  std::vector<double> sums{sum, static_cast<double>(count)};
  group.all_reduce(unisono::as_buffer(std::span(sums)));
  return sums[0] / sums[1];
}

}  // namespace imdb
