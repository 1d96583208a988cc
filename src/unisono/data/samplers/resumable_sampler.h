#pragma once

#include <cstdint>
#include <vector>

#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {

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
