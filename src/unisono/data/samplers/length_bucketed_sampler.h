#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

struct LengthBucketedSamplerOptions {
  /// Samples per batch of one replica.
  std::int64_t batch_size = 1;
  /// Batches of all replicas whose samples are sorted by length together: more pad less, fewer mix
  /// better.
  std::int64_t bucket_batches = 100;
  bool shuffle = true;
  /// Equal on all replicas, or they don't share one order.
  std::int64_t seed = 0;
  /// true: leave out what does not fill a batch on every replica; false: the last batch is smaller,
  /// and the first samples are repeated until the replicas can share it evenly.
  bool drop_last = false;
};

/// Makes batches of samples of similar length, so that little of a padded batch is padding: for
/// text and sound. Not thread-safe.
///
/// The epoch's order is cut into buckets, each bucket is sorted by length and cut into batches of
/// all replicas, and those are shuffled. In each step the replicas get samples of the same batch,
/// equally many of similar length, so that none waits long for another.
class LengthBucketedSampler {
 public:
  /// The sampler of replica `rank` of `num_replicas` for a data set with a length for each sample.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and batch_size and
  /// bucket_batches are at least 1.
  LengthBucketedSampler(std::vector<std::int64_t> lengths,
                        int num_replicas,
                        int rank,
                        const LengthBucketedSamplerOptions& options = {});

  /// The sampler of this rank of a process group.
  template <RankOfWorld Group>
  LengthBucketedSampler(std::vector<std::int64_t> lengths,
                        const Group& group,
                        const LengthBucketedSamplerOptions& options = {})
      : LengthBucketedSampler(std::move(lengths), group.world_size(), group.rank(), options) {}

  /// Call before each epoch with its number, or every epoch has the same batches.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// This replica's batches of the epoch: num_batches() of them, of the same sizes on all replicas.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> batches() const;

  /// Batches that each replica gets per epoch.
  [[nodiscard]] std::int64_t num_batches() const;

 private:
  [[nodiscard]] std::int64_t global_batch_size() const;
  [[nodiscard]] std::int64_t total_size() const;
  [[nodiscard]] std::vector<std::int64_t> epoch_permutation(std::int64_t count) const;
  [[nodiscard]] std::vector<std::int64_t> epoch_order() const;

  std::vector<std::int64_t> lengths_;
  int num_replicas_;
  int rank_;
  LengthBucketedSamplerOptions options_;
  std::int64_t epoch_ = 0;
};

}  // namespace unisono
