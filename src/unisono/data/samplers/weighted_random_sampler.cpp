#include "unisono/data/samplers/weighted_random_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/data/samplers/share.h"
#include "unisono/data/samplers/weight_tree.h"

namespace unisono {
namespace {

[[noreturn]] void throw_bad_weights(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, "WeightedRandomSampler: " + problem);
}

void check_weights(const std::vector<double>& weights) {
  for (std::size_t sample = 0; sample < weights.size(); ++sample) {
    if (!(weights[sample] >= 0 && std::isfinite(weights[sample]))) {
      throw_bad_weights(
          fmt::format("the weight of sample {} is {}; weights are finite and not negative",
                      sample,
                      weights[sample]));
    }
  }
  if (!std::isfinite(std::accumulate(weights.begin(), weights.end(), 0.0))) {
    throw_bad_weights("the sum of the weights is not finite; divide them by their number");
  }
}

std::int64_t most_draws(const std::vector<double>& weights, bool replacement) {
  const std::int64_t n_possible =
      std::ranges::count_if(weights, [](double weight) { return weight > 0; });
  return replacement && n_possible > 0 ? std::numeric_limits<std::int64_t>::max() : n_possible;
}

}  // namespace

WeightedRandomSampler::WeightedRandomSampler(std::vector<double> weights,
                                             std::int64_t num_samples,
                                             int num_replicas,
                                             int rank,
                                             const WeightedRandomSamplerOptions& options)
    : weights_(std::move(weights)),
      num_samples_(num_samples),
      num_replicas_(num_replicas),
      rank_(rank),
      options_(options) {
  data::check_share("WeightedRandomSampler",
                    {.dataset_size = static_cast<std::int64_t>(weights_.size()),
                     .num_replicas = num_replicas,
                     .rank = rank,
                     .first = 0});
  check_weights(weights_);
  if (num_samples < 0) {
    throw_bad_weights(fmt::format("num_samples is {}; it must not be negative", num_samples));
  }
  const std::int64_t n_most = most_draws(weights_, options.replacement);
  if (num_samples > n_most / num_replicas) {
    throw_bad_weights(
        fmt::format("{} replicas want {} samples each, but only {} of {} can be drawn{}",
                    num_replicas,
                    num_samples,
                    n_most,
                    weights_.size(),
                    options.replacement ? "" : " without replacement"));
  }
}

std::vector<std::int64_t> WeightedRandomSampler::indices() const {
  data::WeightTree tree(weights_);
  Random random = Random::of_sample(options_.seed, epoch_, 0);
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(num_samples_));
  for (std::int64_t step = 0; step < num_samples_; ++step) {
    for (int replica = 0; replica < num_replicas_; ++replica) {
      const std::size_t sample = tree.draw(random);
      if (!options_.replacement) {
        tree.remove(sample);
      }
      if (replica == rank_) {
        indices.push_back(static_cast<std::int64_t>(sample));
      }
    }
  }
  return indices;
}

}  // namespace unisono
