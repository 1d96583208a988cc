#include "unisono/data/distributed_sampler.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/data/random_permutation.h"

namespace unisono {
namespace {

constexpr std::int64_t kMaxDatasetSize = std::int64_t{1} << 48;

void check_arguments(std::int64_t dataset_size, int num_replicas, int rank) {
  if (dataset_size < 0 || dataset_size > kMaxDatasetSize) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("DistributedSampler: a data set of {} samples; 0 to {} are possible",
                            dataset_size,
                            kMaxDatasetSize));
  }
  if (num_replicas < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("DistributedSampler: num_replicas is {}; it is the world size, at "
                            "least 1",
                            num_replicas));
  }
  if (rank < 0 || rank >= num_replicas) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("DistributedSampler: rank is {}, but {} replicas have the ranks 0 to "
                            "{}; pass the global rank, not the local one",
                            rank,
                            num_replicas,
                            num_replicas - 1));
  }
}

}  // namespace

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
  check_arguments(dataset_size, num_replicas, rank);
  const bool has_uneven_rest = dataset_size % num_replicas != 0 && !options.drop_last;
  num_samples_ = dataset_size / num_replicas + (has_uneven_rest ? 1 : 0);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  epoch_was_set_ = true;
}

std::vector<std::int64_t> DistributedSampler::indices() {
  warn_when_orders_repeat();

  std::vector<std::int64_t> order;
  if (options_.shuffle) {
    order = data::random_permutation(
        dataset_size_,
        static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch_));
  }
  std::vector<std::int64_t> mine;
  mine.reserve(static_cast<std::size_t>(num_samples_));
  for (std::int64_t i = 0; i < num_samples_; ++i) {
    // Past its end the order starts again: these are the repeated samples.
    const std::int64_t place = (rank_ + i * num_replicas_) % dataset_size_;
    mine.push_back(options_.shuffle ? order[static_cast<std::size_t>(place)] : place);
  }
  return mine;
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
