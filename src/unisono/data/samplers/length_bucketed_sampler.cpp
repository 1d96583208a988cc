#include "unisono/data/samplers/length_bucketed_sampler.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <span>
#include <string>

#include "unisono/base/error.h"
#include "unisono/data/samplers/share.h"

namespace unisono {
namespace {

constexpr std::int64_t kMostPerStep = std::int64_t{1} << 40;

void check_at_least_one(const char* name, std::int64_t value) {
  if (value < 1 || value > kMostPerStep) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "LengthBucketedSampler: {} is {}; 1 to {} are possible", name, value, kMostPerStep));
  }
}

std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

}  // namespace

LengthBucketedSampler::LengthBucketedSampler(std::vector<std::int64_t> lengths,
                                             int num_replicas,
                                             int rank,
                                             const LengthBucketedSamplerOptions& options)
    : lengths_(std::move(lengths)), num_replicas_(num_replicas), rank_(rank), options_(options) {
  data::check_share("LengthBucketedSampler",
                    {.dataset_size = static_cast<std::int64_t>(lengths_.size()),
                     .num_replicas = num_replicas,
                     .rank = rank,
                     .first = 0});
  check_at_least_one("batch_size", options.batch_size);
  check_at_least_one("bucket_batches", options.bucket_batches);
  check_at_least_one("batch_size of all replicas together", options.batch_size * num_replicas);
}

std::int64_t LengthBucketedSampler::global_batch_size() const {
  return options_.batch_size * num_replicas_;
}

std::int64_t LengthBucketedSampler::total_size() const {
  const auto size = static_cast<std::int64_t>(lengths_.size());
  return options_.drop_last ? size / global_batch_size() * global_batch_size()
                            : round_up(size, num_replicas_);
}

std::int64_t LengthBucketedSampler::num_batches() const {
  return round_up(total_size(), global_batch_size()) / global_batch_size();
}

// Returns 0 to count - 1, shuffled if the option asks for it.
std::vector<std::int64_t> LengthBucketedSampler::epoch_permutation(std::int64_t count) const {
  if (options_.shuffle) {
    return data::random_permutation(
        count, static_cast<std::uint64_t>(options_.seed) + static_cast<std::uint64_t>(epoch_));
  }
  std::vector<std::int64_t> order(static_cast<std::size_t>(count));
  std::iota(order.begin(), order.end(), std::int64_t{0});
  return order;
}

// Returns the samples of all replicas in the order of the batches, before the batches are shuffled.
std::vector<std::int64_t> LengthBucketedSampler::epoch_order() const {
  const auto size = static_cast<std::int64_t>(lengths_.size());
  std::vector<std::int64_t> order = epoch_permutation(size);
  const std::int64_t total = total_size();
  for (std::int64_t place = size; place < total; ++place) {
    order.push_back(order[static_cast<std::size_t>(place - size)]);
  }
  order.resize(static_cast<std::size_t>(total));

  std::span<std::int64_t> rest(order);
  while (!rest.empty()) {
    // Divides first, because the product may exceed 64 bits.
    const bool is_last =
        static_cast<std::int64_t>(rest.size()) / global_batch_size() < options_.bucket_batches;
    const std::span<std::int64_t> bucket =
        is_last
            ? rest
            : rest.first(static_cast<std::size_t>(options_.bucket_batches * global_batch_size()));
    std::ranges::stable_sort(bucket, {}, [this](std::int64_t sample) {
      return lengths_[static_cast<std::size_t>(sample)];
    });
    rest = rest.subspan(bucket.size());
  }
  return order;
}

std::vector<std::vector<std::int64_t>> LengthBucketedSampler::batches() const {
  const std::vector<std::int64_t> order = epoch_order();
  std::vector<std::vector<std::int64_t>> batches;
  for (const std::int64_t batch : epoch_permutation(num_batches())) {
    const auto start = static_cast<std::size_t>(batch * global_batch_size());
    const std::size_t end =
        std::min(order.size(), start + static_cast<std::size_t>(global_batch_size()));
    std::vector<std::int64_t>& mine = batches.emplace_back();
    for (std::size_t place = start + static_cast<std::size_t>(rank_); place < end;
         place += static_cast<std::size_t>(num_replicas_)) {
      mine.push_back(order[place]);
    }
  }
  return batches;
}

}  // namespace unisono
