#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/log.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {
namespace data {
struct Share;
struct ShareClaim;
}  // namespace data

/// Options of DistributedSampler: `shuffle` selects a random order in each epoch, in place of the
/// order of the data set.
struct DistributedSamplerOptions {
  bool shuffle = true;
  /// Must be equal on all replicas; otherwise they do not share one order.
  std::int64_t seed = 0;
  /// true: drop the last samples if the replicas cannot share them evenly; false: repeat the first
  /// samples instead.
  bool drop_last = false;
};

/// Deals the indices of a data set to the replicas of a model. Each replica gets the same number of
/// indices, from an order that all replicas compute without communication.
///
/// Same options, defaults and indices as torch.utils.data.distributed.DistributedSampler. Not
/// thread-safe.
class DistributedSampler {
 public:
  /// Creates the sampler of replica `rank` of `num_replicas` for a data set of `dataset_size`
  /// samples.
  ///
  /// `logger` receives warnings; the default logger writes to stderr under the rank's name. Throws
  /// Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48.
  DistributedSampler(std::int64_t dataset_size,
                     int num_replicas,
                     int rank,
                     const DistributedSamplerOptions& options = {});
  DistributedSampler(std::int64_t dataset_size,
                     int num_replicas,
                     int rank,
                     const DistributedSamplerOptions& options,
                     base::Logger logger);

  /// Creates the sampler of this rank of a process group.
  template <RankOfWorld Group>
  DistributedSampler(std::int64_t dataset_size,
                     const Group& group,
                     const DistributedSamplerOptions& options = {})
      : DistributedSampler(dataset_size, group.world_size(), group.rank(), options) {}

  /// Sets the number of the next epoch. Without this call every epoch has the same order.
  void set_epoch(std::int64_t epoch);

  /// Starts an epoch and returns this replica's num_samples() indices.
  ///
  /// Warns once if a second epoch starts with shuffle on and without a call of set_epoch().
  /// Shuffling temporarily takes 8 bytes per sample of the whole data set.
  [[nodiscard]] std::vector<std::int64_t> indices();

  /// Returns the number of indices per replica and epoch.
  [[nodiscard]] std::int64_t num_samples() const { return num_samples_; }

  /// Returns the number of indices of all replicas per epoch.
  [[nodiscard]] std::int64_t total_size() const { return num_samples_ * num_replicas_; }

  [[nodiscard]] std::int64_t epoch() const { return epoch_; }

  /// Returns the values that check_shares() compares.
  [[nodiscard]] data::ShareClaim claim() const;

 private:
  [[nodiscard]] data::Share share() const;
  void warn_when_orders_repeat();

  std::int64_t dataset_size_;
  int num_replicas_;
  int rank_;
  DistributedSamplerOptions options_;
  base::Logger logger_;
  std::int64_t num_samples_;
  std::int64_t epoch_ = 0;
  bool epoch_was_set_ = false;
  int epochs_started_ = 0;  // counts up to 2
};

/// Samples of a step, on each rank and on all ranks.
struct GlobalBatch {
  std::int64_t per_rank = 1;
  int world_size = 1;
  std::int64_t wanted = 0;  ///< Requested global batch; 0: only per_rank was requested.

  [[nodiscard]] std::int64_t size() const { return per_rank * world_size; }
};

/// Divides a global batch of `wanted` samples among the ranks, rounded down to an equal number on
/// each.
///
/// Throws Error(kInvalidArgument) unless there is at least one sample for each rank.
[[nodiscard]] GlobalBatch divide_batch(std::int64_t wanted, int world_size);

/// Returns a line for the user: "global batch 126: 42 on each of 3 ranks (128 is no multiple of 3;
/// 126 and 129 are)".
[[nodiscard]] std::string to_string(const GlobalBatch& batch);

namespace data {

/// Parameters of a sampler, in the form that ranks exchange.
struct ShareClaim {
  std::int64_t dataset_size = 0;
  std::int64_t num_replicas = 1;
  std::int64_t rank = 0;
  std::int64_t seed = 0;
  std::int64_t shuffle = 0;
  std::int64_t drop_last = 0;
};

static_assert(sizeof(ShareClaim) == 6 * sizeof(std::int64_t) &&
              std::is_trivially_copyable_v<ShareClaim>);

/// Throws Error(kMismatch) unless the claims, in rank order, belong to samplers that share one
/// order among all ranks.
void check_claims(std::span<const ShareClaim> claims);

}  // namespace data

/// Checks that the samplers of a group's ranks share one order: that no two ranks deal the same
/// samples (a local rank instead of the rank in the group), and that all use the same data set and
/// seed. A small all_gather(): all ranks call this function once, before training.
///
/// Throws Error(kMismatch) on all ranks, with the ranks that disagree, and the errors of
/// all_gather().
template <RankOfWorld Group, class DealingSampler>
void check_shares(Group& group, const DealingSampler& sampler) {
  data::ShareClaim own = sampler.claim();
  std::vector<data::ShareClaim> all(static_cast<std::size_t>(group.world_size()));
  constexpr auto kNumbers = static_cast<std::int64_t>(sizeof(own) / sizeof(std::int64_t));
  const Buffer in{.data = &own, .count = kNumbers, .dtype = DType::kInt64};
  const Buffer out{.data = all.data(),
                   .count = kNumbers * static_cast<std::int64_t>(all.size()),
                   .dtype = DType::kInt64};
  group.all_gather(in, out);
  data::check_claims(all);
}

/// Position of a job in an epoch, independent of the number of replicas: a value to save and to
/// load.
struct SamplerState {
  std::int64_t epoch = 0;
  /// Samples of the epoch's order that all replicas together have consumed.
  std::int64_t n_consumed = 0;
  std::int64_t dataset_size = 0;
  std::int64_t seed = 0;
  bool shuffle = true;

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// A DistributedSampler that records how much of its epoch was consumed, so that another job can
/// continue from that position with any number of replicas and any batch size.
///
/// All replicas consume the same number of samples of each epoch. The consumed samples are the
/// start of the epoch's order, and the remaining samples are dealt anew. No sample is dealt twice
/// or left out, except at the end of the epoch if fewer samples remain than there are replicas:
/// with drop_last these samples are left out, otherwise the first samples of the order are
/// repeated. A job that is never interrupted gets the indices of DistributedSampler. Not
/// thread-safe.
class ResumableSampler {
 public:
  /// Creates the sampler of replica `rank` of `num_replicas` for a data set of `dataset_size`
  /// samples, at the start of epoch 0. Throws Error(kInvalidArgument) like DistributedSampler.
  ResumableSampler(std::int64_t dataset_size,
                   int num_replicas,
                   int rank,
                   const DistributedSamplerOptions& options = {});

  /// Creates the sampler of this rank of a process group.
  template <RankOfWorld Group>
  ResumableSampler(std::int64_t dataset_size,
                   const Group& group,
                   const DistributedSamplerOptions& options = {})
      : ResumableSampler(dataset_size, group.world_size(), group.rank(), options) {}

  /// Moves to the start of the epoch. Has no effect if the sampler is already in that epoch.
  void set_epoch(std::int64_t epoch);

  /// Returns the remaining num_samples() indices of this replica in the epoch. Does not change
  /// state(), because a loader fetches indices before they are used.
  ///
  /// Throws Error(kInvalidArgument) if advance() has reached the end of the epoch, which means that
  /// set_epoch() was not called. The first call after load_state() at the end of an epoch returns
  /// no indices instead.
  [[nodiscard]] std::vector<std::int64_t> indices();

  /// Returns the number of remaining indices of each replica in the epoch.
  [[nodiscard]] std::int64_t num_samples() const;

  /// Records that this replica has consumed its next `n_samples`, and every other replica the same
  /// number.
  ///
  /// Throws Error(kInvalidArgument) if `n_samples` is negative or more than num_samples().
  void advance(std::int64_t n_samples);

  [[nodiscard]] std::int64_t epoch() const { return state_.epoch; }

  /// Returns the position, which is equal on all replicas that have advanced equally far.
  [[nodiscard]] const SamplerState& state() const { return state_; }

  /// Moves to the position `state`. The seed and shuffle of `state` replace the options.
  ///
  /// Throws Error(kInvalidArgument) if `state` belongs to a data set of another size or is not a
  /// valid position.
  void load_state(const SamplerState& state);

  /// Returns the values that check_shares() compares.
  [[nodiscard]] data::ShareClaim claim() const;

 private:
  [[nodiscard]] data::Share share() const;

  SamplerState state_;
  int num_replicas_;
  int rank_;
  bool drop_last_;
  bool may_be_at_end_ = false;  // set by load_state(), cleared by set_epoch() and indices()
};

}  // namespace unisono
