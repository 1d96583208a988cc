#include "unisono/data/samplers/evaluation_sampler.h"

#include <cstdint>
#include <vector>

#include "unisono/data/samplers/share.h"

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
