#pragma once

#include <cstdint>
#include <vector>

#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/sampler.h"

namespace unisono {

/// Where a job is in an epoch, whatever its number of replicas: a value to save and to load.
struct SamplerState {
  std::int64_t epoch = 0;
  std::int64_t n_consumed = 0;  ///< By all replicas together, of the epoch's order.
  std::int64_t dataset_size = 0;
  std::int64_t seed = 0;
  bool shuffle = true;

  friend bool operator==(const SamplerState&, const SamplerState&) = default;
};

/// A DistributedSampler that knows how much of its epoch was consumed: another job goes on from
/// there, with as many replicas as it has and any size of batches.
///
/// All replicas consume equally many samples of each epoch; what they have consumed is then the
/// start of the epoch's order, and what is left is dealt anew. No sample is dealt twice or left out
/// but at the epoch's end, where fewer are left than there are replicas: they are left out with
/// drop_last, else the first ones of the order fill them up. A job that is never interrupted gets
/// what DistributedSampler deals. Not thread-safe.
class ResumableSampler {
 public:
  /// The sampler of replica `rank` of `num_replicas` for a data set of `dataset_size` samples, at
  /// the start of epoch 0. Throws Error(kInvalidArgument) as DistributedSampler does.
  ResumableSampler(std::int64_t dataset_size,
                   int num_replicas,
                   int rank,
                   const DistributedSamplerOptions& options = {});

  /// The sampler of this rank of a process group.
  template <RankOfWorld Group>
  ResumableSampler(std::int64_t dataset_size,
                   const Group& group,
                   const DistributedSamplerOptions& options = {})
      : ResumableSampler(dataset_size, group.world_size(), group.rank(), options) {}

  /// Goes to the start of the epoch; where it is in that epoch already, it stays where it is.
  void set_epoch(std::int64_t epoch);

  /// What this replica still gets of the epoch: num_samples() indices. Changes no state, as a
  /// loader takes them before they are used.
  ///
  /// Throws Error(kInvalidArgument) if advance() has come to the epoch's end: set_epoch() was
  /// forgotten. Once after load_state() of an epoch's end the rest is empty instead.
  [[nodiscard]] std::vector<std::int64_t> indices();

  /// Indices that each replica still gets of the epoch.
  [[nodiscard]] std::int64_t num_samples() const;

  /// This replica has consumed its next `n_samples`, and the others as many of theirs.
  ///
  /// Throws Error(kInvalidArgument) if it is negative, or more than num_samples().
  void advance(std::int64_t n_samples);

  [[nodiscard]] std::int64_t epoch() const { return state_.epoch; }

  /// Equal on all replicas that have advanced equally far.
  [[nodiscard]] const SamplerState& state() const { return state_; }

  /// Goes to where the job was whose state it is. Its seed and shuffle replace the options'.
  ///
  /// Throws Error(kInvalidArgument) if the state is of a data set of another size, or of none.
  void load_state(const SamplerState& state);

  /// What check_shares() compares.
  [[nodiscard]] data::ShareClaim claim() const;

 private:
  [[nodiscard]] data::Share share() const;

  SamplerState state_;
  int num_replicas_;
  int rank_;
  bool drop_last_;
  bool may_be_at_end_ = false;  // loaded, and no epoch was begun since
};

}  // namespace unisono
