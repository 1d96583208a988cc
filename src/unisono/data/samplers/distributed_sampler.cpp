#include "unisono/data/samplers/distributed_sampler.h"

#include <fmt/format.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/data/samplers/share.h"
#include "unisono/data/samplers/share_check.h"

namespace unisono {

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       int num_replicas,
                                       int rank,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(
          dataset_size, num_replicas, rank, options, Logger(fmt::format("rank {}", rank))) {}

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       int num_replicas,
                                       int rank,
                                       const DistributedSamplerOptions& options,
                                       Logger logger)
    : dataset_size_(dataset_size),
      num_replicas_(num_replicas),
      rank_(rank),
      options_(options),
      logger_(std::move(logger)),
      num_samples_(0) {
  data::check_share("DistributedSampler", share());
  num_samples_ = data::size_of(share(), options.drop_last);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  epoch_was_set_ = true;
}

std::vector<std::int64_t> DistributedSampler::indices() {
  warn_when_orders_repeat();
  return data::deal(
      share(), num_samples_, {.shuffle = options_.shuffle, .seed = options_.seed, .epoch = epoch_});
}

data::ShareClaim DistributedSampler::claim() const {
  return {.dataset_size = dataset_size_,
          .num_replicas = num_replicas_,
          .rank = rank_,
          .seed = options_.seed,
          .shuffle = options_.shuffle ? 1 : 0,
          .drop_last = options_.drop_last ? 1 : 0};
}

data::Share DistributedSampler::share() const {
  return {.dataset_size = dataset_size_, .num_replicas = num_replicas_, .rank = rank_, .first = 0};
}

void DistributedSampler::warn_when_orders_repeat() {
  if (epochs_started_ == 2) {
    return;
  }
  ++epochs_started_;
  if (epochs_started_ == 2 && options_.shuffle && !epoch_was_set_) {
    logger_.warning(
        "DistributedSampler: a second epoch starts and set_epoch() was never called, so every "
        "epoch has the same order; call sampler.set_epoch(epoch) before each epoch");
  }
}

}  // namespace unisono
