#include "unisono/data/samplers/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

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

namespace unisono {

EvaluationSampler::EvaluationSampler(std::int64_t dataset_size, int num_replicas, int rank)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank) {
  data::check_share(
      "EvaluationSampler",
      {.dataset_size = dataset_size, .num_replicas = num_replicas, .rank = rank, .first = 0});
}

std::vector<std::int64_t> EvaluationSampler::indices() const {
  return data::deal(
      {.dataset_size = dataset_size_, .num_replicas = num_replicas_, .rank = rank_, .first = 0},
      num_samples(),
      {.shuffle = false, .seed = 0, .epoch = 0});
}

std::int64_t EvaluationSampler::num_samples() const {
  const std::int64_t n_full = dataset_size_ / num_replicas_;
  return n_full + (rank_ < dataset_size_ % num_replicas_ ? 1 : 0);
}

}  // namespace unisono
