#include "unisono/data/samplers/distributed_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

namespace unisono {

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       int num_replicas,
                                       int rank,
                                       const DistributedSamplerOptions& options)
    : DistributedSampler(
          dataset_size, num_replicas, rank, options, base::Logger(fmt::format("rank {}", rank))) {}

DistributedSampler::DistributedSampler(std::int64_t dataset_size,
                                       int num_replicas,
                                       int rank,
                                       const DistributedSamplerOptions& options,
                                       base::Logger logger)
    : dataset_size_(dataset_size),
      num_replicas_(num_replicas),
      rank_(rank),
      options_(options),
      logger_(std::move(logger)),
      num_samples_(0) {
  data::check_share("DistributedSampler", share());
  num_samples_ = data::size_of(share(), options.drop_last);
}

void DistributedSampler::set_epoch(std::int64_t epoch) {
  epoch_ = epoch;
  epoch_was_set_ = true;
}

std::vector<std::int64_t> DistributedSampler::indices() {
  warn_when_orders_repeat();
  return data::deal(
      share(), num_samples_, {.shuffle = options_.shuffle, .seed = options_.seed, .epoch = epoch_});
}

data::ShareClaim DistributedSampler::claim() const {
  return {.dataset_size = dataset_size_,
          .num_replicas = num_replicas_,
          .rank = rank_,
          .seed = options_.seed,
          .shuffle = options_.shuffle ? 1 : 0,
          .drop_last = options_.drop_last ? 1 : 0};
}

data::Share DistributedSampler::share() const {
  return {.dataset_size = dataset_size_, .num_replicas = num_replicas_, .rank = rank_, .first = 0};
}

void DistributedSampler::warn_when_orders_repeat() {
  if (epochs_started_ == 2) {
    return;
  }
  ++epochs_started_;
  if (epochs_started_ == 2 && options_.shuffle && !epoch_was_set_) {
    logger_.warning(
        "DistributedSampler: a second epoch starts and set_epoch() was never called, so every "
        "epoch has the same order; call sampler.set_epoch(epoch) before each epoch");
  }
}

GlobalBatch divide_batch(std::int64_t wanted, int world_size) {
  if (world_size < 1 || wanted < world_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("divide_batch: a global batch of {} over {} ranks; each rank must get "
                            "at least one sample",
                            wanted,
                            world_size));
  }
  return {.per_rank = wanted / world_size, .world_size = world_size, .wanted = wanted};
}

std::string to_string(const GlobalBatch& batch) {
  std::string text = fmt::format(
      "global batch {}: {} on {}",
      batch.size(),
      batch.per_rank,
      batch.world_size == 1 ? "one rank" : fmt::format("each of {} ranks", batch.world_size));
  if (batch.wanted != 0 && batch.wanted != batch.size()) {
    text += fmt::format(" ({} is not a multiple of {}; {} and {} are)",
                        batch.wanted,
                        batch.world_size,
                        batch.size(),
                        batch.size() + batch.world_size);
  }
  return text;
}

}  // namespace unisono

namespace unisono::data {
namespace {

[[noreturn]] void throw_mismatch(const std::string& problem) {
  throw Error(ErrorCode::kMismatch, "check_shares: " + problem);
}

void check_number_of_replicas(std::span<const ShareClaim> claims) {
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    if (claims[rank].num_replicas != static_cast<std::int64_t>(claims.size())) {
      throw_mismatch(
          fmt::format("rank {} deals to {} replicas in a group of {} ranks; give the "
                      "sampler the group, or its world size",
                      rank,
                      claims[rank].num_replicas,
                      claims.size()));
    }
  }
}

void check_replicas_differ(std::span<const ShareClaim> claims) {
  std::map<std::int64_t, std::size_t> rank_of_replica;
  std::string doubled;
  for (std::size_t rank = 0; rank < claims.size(); ++rank) {
    const auto [first, is_new] = rank_of_replica.try_emplace(claims[rank].rank, rank);
    if (!is_new && doubled.empty()) {
      doubled = fmt::format(
          "ranks {} and {} both deal the samples of replica {}", first->second, rank, first->first);
    }
  }
  if (doubled.empty()) {
    return;
  }
  std::int64_t missing = 0;
  while (rank_of_replica.contains(missing)) {
    ++missing;
  }
  throw_mismatch(
      fmt::format("{}, and no rank those of replica {}, in a group of {} ranks; give the "
                  "sampler the group, or its rank, not the local rank",
                  doubled,
                  missing,
                  claims.size()));
}

std::string describe(const ShareClaim& claim) {
  return fmt::format(
      "{} samples, {}, drop_last {}",
      claim.dataset_size,
      claim.shuffle != 0 ? fmt::format("shuffled by seed {}", claim.seed) : "in their order",
      claim.drop_last != 0);
}

void check_orders_agree(std::span<const ShareClaim> claims) {
  for (std::size_t rank = 1; rank < claims.size(); ++rank) {
    const std::string first = describe(claims.front());
    const std::string other = describe(claims[rank]);
    if (first != other) {
      throw_mismatch(
          fmt::format("ranks 0 and {} do not share one order: {} on rank 0, {} on rank "
                      "{}",
                      rank,
                      first,
                      other,
                      rank));
    }
  }
}

}  // namespace

void check_claims(std::span<const ShareClaim> claims) {
  check_number_of_replicas(claims);
  check_replicas_differ(claims);
  check_orders_agree(claims);
}

}  // namespace unisono::data

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
