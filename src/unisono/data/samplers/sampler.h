#pragma once

#include <concepts>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace unisono {

/// Defines the samples of an epoch and their order.
template <class T>
concept Sampler = requires(T& sampler) {
  { sampler.indices() } -> std::convertible_to<std::vector<std::int64_t>>;
};

/// Defines the samples of each batch of an epoch.
template <class T>
concept SamplerOfBatches = requires(T& sampler) {
  { sampler.batches() } -> std::convertible_to<std::vector<std::vector<std::int64_t>>>;
};

/// The part of a process group that a sampler needs.
template <class T>
concept RankOfWorld = requires(const T& group) {
  { group.rank() } -> std::convertible_to<int>;
  { group.world_size() } -> std::convertible_to<int>;
};

namespace data {

/// Cuts `indices` into pieces of `batch_size`. With `drop_last` a smaller last piece is left out.
///
/// Throws Error(kInvalidArgument) unless batch_size is at least 1.
[[nodiscard]] std::vector<std::vector<std::int64_t>> cut_into_batches(
    std::span<const std::int64_t> indices, std::int64_t batch_size, bool drop_last);

}  // namespace data

/// Batches of another sampler's indices, in order; same as torch.utils.data.BatchSampler. Not
/// thread-safe.
template <Sampler Source>
class BatchSampler {
 public:
  /// `source` must outlive the object.
  ///
  /// `drop_last` drops the last batch if it is smaller than the other batches.
  BatchSampler(Source& source, std::int64_t batch_size, bool drop_last = false)
      : source_(&source), batch_size_(batch_size), drop_last_(drop_last) {}

  /// Starts an epoch of the source and returns its batches.
  ///
  /// Throws the errors of the source's indices(), and Error(kInvalidArgument) for a batch size
  /// below 1.
  [[nodiscard]] std::vector<std::vector<std::int64_t>> batches() {
    return data::cut_into_batches(source_->indices(), batch_size_, drop_last_);
  }

 private:
  Source* source_;
  std::int64_t batch_size_;
  bool drop_last_;
};

/// Deals every sample of a test set to exactly one replica, in order, so that counts and sums over
/// all replicas equal those of a single process.
///
/// No sample is repeated. If the replicas cannot share the samples evenly, the first replicas get
/// one sample more, and perhaps one batch more. Results must therefore be added once at the end,
/// not batch by batch. The object does not change after construction, so all members are
/// thread-safe.
class EvaluationSampler {
 public:
  /// Creates the sampler of replica `rank` of `num_replicas`.
  ///
  /// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48.
  EvaluationSampler(std::int64_t dataset_size, int num_replicas, int rank);

  /// Creates the sampler of this rank of a process group.
  template <RankOfWorld Group>
  EvaluationSampler(std::int64_t dataset_size, const Group& group)
      : EvaluationSampler(dataset_size, group.world_size(), group.rank()) {}

  /// Returns this replica's indices: rank, rank + num_replicas, and so on.
  [[nodiscard]] std::vector<std::int64_t> indices() const;

  /// Returns the number of this replica's indices.
  [[nodiscard]] std::int64_t num_samples() const;

 private:
  std::int64_t dataset_size_;
  int num_replicas_;
  int rank_;
};

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
