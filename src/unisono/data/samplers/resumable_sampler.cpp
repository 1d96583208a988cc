#include "unisono/data/samplers/resumable_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

namespace unisono {

ResumableSampler::ResumableSampler(std::int64_t dataset_size,
                                   int num_replicas,
                                   int rank,
                                   const DistributedSamplerOptions& options)
    : state_{.dataset_size = dataset_size, .seed = options.seed, .shuffle = options.shuffle},
      num_replicas_(num_replicas),
      rank_(rank),
      drop_last_(options.drop_last) {
  data::check_share("ResumableSampler", share());
}

void ResumableSampler::set_epoch(std::int64_t epoch) {
  if (epoch == state_.epoch) {
    return;
  }
  state_.epoch = epoch;
  state_.n_consumed = 0;
  may_be_at_end_ = false;
}

std::vector<std::int64_t> ResumableSampler::indices() {
  const bool may_be_at_end = std::exchange(may_be_at_end_, false);
  if (state_.n_consumed > 0 && num_samples() == 0 && !may_be_at_end) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ResumableSampler: epoch {} is consumed to its end; call "
                            "set_epoch({}) before the next one",
                            state_.epoch,
                            state_.epoch + 1));
  }
  return data::deal(share(),
                    num_samples(),
                    {.shuffle = state_.shuffle, .seed = state_.seed, .epoch = state_.epoch});
}

std::int64_t ResumableSampler::num_samples() const {
  return data::size_of(share(), drop_last_);
}

void ResumableSampler::advance(std::int64_t n_samples) {
  if (n_samples < 0 || n_samples > num_samples()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ResumableSampler: rank {} advances by {} samples, but epoch {} has "
                            "{} left for each of {} replicas; pass how many samples of its own "
                            "this replica has consumed since the last call",
                            rank_,
                            n_samples,
                            state_.epoch,
                            num_samples(),
                            num_replicas_));
  }
  state_.n_consumed = std::min(state_.dataset_size, state_.n_consumed + n_samples * num_replicas_);
}

void ResumableSampler::load_state(const SamplerState& state) {
  if (state.dataset_size != state_.dataset_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ResumableSampler: the state is of a data set of {} samples, but this "
                            "one has {}; go on with the same data set, or start a new epoch "
                            "without the state",
                            state.dataset_size,
                            state_.dataset_size));
  }
  if (state.n_consumed < 0 || state.n_consumed > state.dataset_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("ResumableSampler: in the state, {} of {} samples are consumed; load a "
                            "state that a sampler's state() has returned",
                            state.n_consumed,
                            state.dataset_size));
  }
  state_ = state;
  may_be_at_end_ = true;
}

data::ShareClaim ResumableSampler::claim() const {
  return {.dataset_size = state_.dataset_size,
          .num_replicas = num_replicas_,
          .rank = rank_,
          .seed = state_.seed,
          .shuffle = state_.shuffle ? 1 : 0,
          .drop_last = drop_last_ ? 1 : 0};
}

data::Share ResumableSampler::share() const {
  return {.dataset_size = state_.dataset_size,
          .num_replicas = num_replicas_,
          .rank = rank_,
          .first = state_.n_consumed};
}

}  // namespace unisono
