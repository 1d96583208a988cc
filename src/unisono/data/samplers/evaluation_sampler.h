#pragma once

#include <cstdint>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

/// Deals every sample of a test set to exactly one replica, in order, so that counts and sums over
/// all replicas are those of one process.
///
/// Nothing is repeated to even the shares out: the first replicas get one sample more than the
/// others where it does not go up evenly, and perhaps one batch more. So add results up once, at
/// the end, and not batch by batch.
class EvaluationSampler {
 public:
  /// The sampler of replica `rank` of `num_replicas`.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48.
  EvaluationSampler(std::int64_t dataset_size, int num_replicas, int rank);

  /// The sampler of this rank of a process group.
  template <RankOfWorld Group>
  EvaluationSampler(std::int64_t dataset_size, const Group& group)
      : EvaluationSampler(dataset_size, group.world_size(), group.rank()) {}

  /// This replica's indices: rank, rank + num_replicas, and so on.
  [[nodiscard]] std::vector<std::int64_t> indices() const;

  /// Number of them.
  [[nodiscard]] std::int64_t num_samples() const;

 private:
  std::int64_t dataset_size_;
  int num_replicas_;
  int rank_;
};

}  // namespace unisono
