#include "unisono/data/samplers/batch_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::data {

std::vector<std::vector<std::int64_t>> cut_into_batches(std::span<const std::int64_t> indices,
                                                        std::int64_t batch_size,
                                                        bool drop_last) {
  if (batch_size < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("BatchSampler: batch_size is {}; it must be at least 1", batch_size));
  }
  std::vector<std::vector<std::int64_t>> batches;
  while (!indices.empty()) {
    const auto n_wanted = static_cast<std::size_t>(batch_size);
    if (indices.size() < n_wanted && drop_last) {
      break;
    }
    const auto batch = indices.first(std::min(n_wanted, indices.size()));
    batches.emplace_back(batch.begin(), batch.end());
    indices = indices.subspan(batch.size());
  }
  return batches;
}

}  // namespace unisono::data
