#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "unisono/data/samplers/sampler.h"

namespace unisono {

/// Options of LengthBucketedSampler: `shuffle` selects a random order in each epoch, in place of
/// the order of the data set.
struct LengthBucketedSamplerOptions {
  /// Samples per batch of a replica.
  std::int64_t batch_size = 1;
  /// Number of batches of all replicas that are sorted by length together. More batches need less
  /// padding, fewer batches mix better.
  std::int64_t bucket_batches = 100;
  bool shuffle = true;
  /// Must be equal on all replicas; otherwise they do not share one order.
  std::int64_t seed = 0;
  /// true: drop samples that do not fill a batch on every replica; false: the last batch is
  /// smaller, and the first samples are repeated until the replicas can share it evenly.
  bool drop_last = false;
};

/// Makes batches of samples of similar length, so that padded batches of text or sound have little
/// padding. Not thread-safe.
///
/// The epoch's order is cut into buckets. Each bucket is sorted by length and cut into batches of
/// all replicas, and the batches are shuffled. In each step the replicas get equally many samples
/// of the same batch, of similar length, so that no replica waits long for another.
class LengthBucketedSampler {
 public:
  /// Creates the sampler of replica `rank` of `num_replicas` for a data set with a length for each
  /// sample.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and batch_size and
  /// bucket_batches are at least 1.
  LengthBucketedSampler(std::vector<std::int64_t> lengths,
                        int num_replicas,
                        int rank,
                        const LengthBucketedSamplerOptions& options = {});

  /// Creates the sampler of this rank of a process group.
  template <RankOfWorld Group>
  LengthBucketedSampler(std::vector<std::int64_t> lengths,
                        const Group& group,
                        const LengthBucketedSamplerOptions& options = {})
      : LengthBucketedSampler(std::move(lengths), group.world_size(), group.rank(), options) {}

  /// Sets the number of the next epoch. Without this call every epoch has the same batches.
  void set_epoch(std::int64_t epoch) { epoch_ = epoch; }

  /// Returns this replica's num_batches() batches of the epoch, with equal sizes on all replicas.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> batches() const;

  /// Returns the number of batches per replica and epoch.
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
