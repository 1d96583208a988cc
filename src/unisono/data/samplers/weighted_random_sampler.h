#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

struct WeightedRandomSamplerOptions {
  /// false: no sample comes twice in an epoch.
  bool replacement = true;
  /// Equal on all replicas, or they don't share one order.
  std::int64_t seed = 0;
};

/// Draws samples by weight: rare classes as often as frequent ones, for instance. Not thread-safe.
///
/// All replicas draw the same numbers, of which each takes every num_replicas-th. The numbers are
/// those of Random::of_sample(seed, epoch, 0): each draw takes one u = uniform() * (sum of weights)
/// and walks down a binary tree of sums, left where u is below the left sum, else right with u less
/// that sum; without replacement the weight becomes 0 then. So they are the same on every machine,
/// but not those of torch's sampler, whose numbers differ between releases and devices.
class WeightedRandomSampler {
 public:
  /// The sampler of replica `rank` of `num_replicas`, which gets `num_samples` indices per epoch of
  /// a data set with a weight for each sample. Weights need not add up to 1.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas; for a weight that is negative
  /// or not finite; where num_samples is negative; and where all replicas together want more
  /// samples than can be drawn: than have a weight above 0, without replacement, or any if none
  /// has.
  WeightedRandomSampler(std::vector<double> weights,
                        std::int64_t num_samples,
                        int num_replicas,
                        int rank,
                        const WeightedRandomSamplerOptions& options = {});

  /// The sampler of this rank of a process group.
  template <RankOfWorld Group>
  WeightedRandomSampler(std::vector<double> weights,
                        std::int64_t num_samples,
                        const Group& group,
                        const WeightedRandomSamplerOptions& options = {})
      : WeightedRandomSampler(
            std::move(weights), num_samples, group.world_size(), group.rank(), options) {}

  /// Call before each epoch with its number, or every epoch draws the same samples.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// This replica's samples of the epoch. Takes time for the samples of all replicas.
  [[nodiscard]] std::vector<std::int64_t> indices() const;

  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }

 private:
  std::vector<double> weights_;
  std::int64_t num_samples_;
  int num_replicas_;
  int rank_;
  WeightedRandomSamplerOptions options_;
  std::int64_t epoch_ = 0;
};

}  // namespace unisono
