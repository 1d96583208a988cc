#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

/// Options of WeightedRandomSampler.
struct WeightedRandomSamplerOptions {
  /// false: no sample occurs twice in an epoch.
  bool replacement = true;
  /// Must be equal on all replicas; otherwise they do not share one order.
  std::int64_t seed = 0;
};

/// Draws samples by weight, for example rare classes as often as frequent classes. Not thread-safe.
///
/// All replicas draw the same numbers, and each replica takes every num_replicas-th number. The
/// numbers come from data::Random::of_sample(seed, epoch, 0): each draw takes u = uniform() * (sum
/// of weights) and descends a binary tree of sums, to the left if u is below the left sum,
/// otherwise to the right with u reduced by the left sum. Without replacement the weight then
/// becomes 0. The numbers are therefore equal on every machine, but differ from those of torch's
/// sampler, which change between releases and devices.
class WeightedRandomSampler {
 public:
  /// Creates the sampler of replica `rank` of `num_replicas`, which gets `num_samples` indices per
  /// epoch of a data set with a weight for each sample. The sum of the weights need not be 1.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas; for a weight that is negative
  /// or not finite; for a negative num_samples; and if all replicas together need more samples than
  /// can be drawn (without replacement: more than have a weight above 0; with replacement: any, if
  /// no weight is above 0).
  WeightedRandomSampler(std::vector<double> weights,
                        std::int64_t num_samples,
                        int num_replicas,
                        int rank,
                        const WeightedRandomSamplerOptions& options = {});

  /// Creates the sampler of this rank of a process group.
  template <RankOfWorld Group>
  WeightedRandomSampler(std::vector<double> weights,
                        std::int64_t num_samples,
                        const Group& group,
                        const WeightedRandomSamplerOptions& options = {})
      : WeightedRandomSampler(
            std::move(weights), num_samples, group.world_size(), group.rank(), options) {}

  /// Sets the number of the next epoch. Without this call every epoch draws the same samples.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// Returns this replica's samples of the epoch. Takes the time for the samples of all replicas.
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
