#pragma once

#include <cstdint>
#include <vector>

#include "unisono/base/log.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {

namespace data {
struct Share;
struct ShareClaim;
}  // namespace data

struct DistributedSamplerOptions {
  bool shuffle = true;
  /// Equal on all replicas, or they don't share one order.
  std::int64_t seed = 0;
  /// true: leave the last samples out where the replicas can't share them evenly; false: repeat
  /// the first ones until they can.
  bool drop_last = false;
};

/// Deals a data set's indices to the replicas of a model: each gets equally many, in an order that
/// all replicas agree on without talking.
///
/// Same options, defaults and indices as torch.utils.data.distributed.DistributedSampler. Not
/// thread-safe.
class DistributedSampler {
 public:
  /// The sampler of replica `rank` of `num_replicas` for a data set of `dataset_size` samples.
  ///
  /// `logger` gets the sampler's warnings; without one they go to stderr under the rank's name.
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48.
  DistributedSampler(std::int64_t dataset_size,
                     int num_replicas,
                     int rank,
                     const DistributedSamplerOptions& options = {});
  DistributedSampler(std::int64_t dataset_size,
                     int num_replicas,
                     int rank,
                     const DistributedSamplerOptions& options,
                     Logger logger);

  /// The sampler of this rank of a process group.
  template <RankOfWorld Group>
  DistributedSampler(std::int64_t dataset_size,
                     const Group& group,
                     const DistributedSamplerOptions& options = {})
      : DistributedSampler(dataset_size, group.world_size(), group.rank(), options) {}

  /// Call before each epoch with its number, or every epoch has the same order.
  void set_epoch(std::int64_t epoch);

  /// Starts an epoch: this replica's indices, num_samples() of them.
  ///
  /// Warns once when a second epoch starts with shuffle on and set_epoch() was never called. When
  /// shuffling it takes 8 bytes per sample of the whole data set while it runs.
  [[nodiscard]] std::vector<std::int64_t> indices();

  /// Indices that each replica gets per epoch.
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }

  /// Indices that all replicas together get per epoch.
  [[nodiscard]] std::int64_t total_size() const { return num_samples_ * num_replicas_; }

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }

  /// What check_shares() compares.
  [[nodiscard]] data::ShareClaim claim() const;

 private:
  [[nodiscard]] data::Share share() const;
  void warn_when_orders_repeat();

  std::int64_t dataset_size_;
  int num_replicas_;
  int rank_;
  DistributedSamplerOptions options_;
  Logger logger_;
  std::int64_t num_samples_;
  std::int64_t epoch_ = 0;
  bool epoch_was_set_ = false;
  int epochs_started_ = 0;  // stops counting at 2
};

}  // namespace unisono
