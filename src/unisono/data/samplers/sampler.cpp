#include "unisono/data/samplers/sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/data/samplers/share.h"

namespace unisono::data {

std::vector<std::vector<std::int64_t>> cut_into_batches(std::span<const std::int64_t> indices,
                                                        std::int64_t batch_size,
                                                        bool drop_last) {
  if (batch_size < 1) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("BatchSampler: batch_size is {}; it must be at least 1", batch_size));
  }
  std::vector<std::vector<std::int64_t>> batches;
  while (!indices.empty()) {
    const auto n_wanted = static_cast<std::size_t>(batch_size);
    if (indices.size() < n_wanted && drop_last) {
      break;
    }
    const auto batch = indices.first(std::min(n_wanted, indices.size()));
    batches.emplace_back(batch.begin(), batch.end());
    indices = indices.subspan(batch.size());
  }
  return batches;
}

}  // namespace unisono::data

namespace unisono {

EvaluationSampler::EvaluationSampler(std::int64_t dataset_size, int num_replicas, int rank)
    : dataset_size_(dataset_size), num_replicas_(num_replicas), rank_(rank) {
  data::check_share(
      "EvaluationSampler",
      {.dataset_size = dataset_size, .num_replicas = num_replicas, .rank = rank, .first = 0});
}

std::vector<std::int64_t> EvaluationSampler::indices() const {
  return data::deal(
      {.dataset_size = dataset_size_, .num_replicas = num_replicas_, .rank = rank_, .first = 0},
      num_samples(),
      {.shuffle = false, .seed = 0, .epoch = 0});
}

std::int64_t EvaluationSampler::num_samples() const {
  const std::int64_t n_full = dataset_size_ / num_replicas_;
  return n_full + (rank_ < dataset_size_ % num_replicas_ ? 1 : 0);
}

}  // namespace unisono

namespace unisono::data {

/// Draws numbers by weight, in logarithmic time each: a binary tree with the weights as leaves, in
/// which each node is the sum of its children. Not thread-safe.
class WeightTree {
 public:
  /// Weights must be finite and not negative.
  explicit WeightTree(std::span<const double> weights);

  /// Returns the sum of all weights.
  [[nodiscard]] double total() const { return sums_[1]; }

  /// Returns a number with probability weight / total(), never a number of weight 0. total() must
  /// be above 0.
  [[nodiscard]] std::size_t draw(Random& random) const;

  /// Sets a weight to 0. The sums are recomputed, so that no rounding error of the weight remains.
  void remove(std::size_t number);

 private:
  std::size_t n_leaves_;
  std::vector<double> sums_;  // node i has the children 2i and 2i + 1; leaves are the last half
};

WeightTree::WeightTree(std::span<const double> weights)
    : n_leaves_(std::bit_ceil(std::max<std::size_t>(weights.size(), 1))), sums_(2 * n_leaves_) {
  std::ranges::copy(weights, sums_.begin() + static_cast<std::ptrdiff_t>(n_leaves_));
  for (std::size_t node = n_leaves_ - 1; node > 0; --node) {
    sums_[node] = sums_[2 * node] + sums_[2 * node + 1];
  }
}

std::size_t WeightTree::draw(Random& random) const {
  double left_over = random.uniform() * total();
  std::size_t node = 1;
  while (node < n_leaves_) {
    const double left = sums_[2 * node];
    const double right = sums_[2 * node + 1];
    // Rounding may point just behind the last weight above 0.
    const bool goes_left = left_over < left || right == 0;
    left_over = goes_left ? left_over : left_over - left;
    node = 2 * node + (goes_left ? 0 : 1);
  }
  return node - n_leaves_;
}

void WeightTree::remove(std::size_t number) {
  std::size_t node = n_leaves_ + number;
  sums_[node] = 0;
  for (node /= 2; node > 0; node /= 2) {
    sums_[node] = sums_[2 * node] + sums_[2 * node + 1];
  }
}

}  // namespace unisono::data

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
        fmt::format("{} replicas need {} samples each, but only {} of {} can be drawn{}",
                    num_replicas,
                    num_samples,
                    n_most,
                    weights_.size(),
                    options.replacement ? "" : " without replacement"));
  }
}

std::vector<std::int64_t> WeightedRandomSampler::indices() const {
  data::WeightTree tree(weights_);
  data::Random random = data::Random::of_sample(options_.seed, epoch_, 0);
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
