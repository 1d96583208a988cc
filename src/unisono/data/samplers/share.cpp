#include "unisono/data/samplers/share.h"

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/samplers/random_permutation.h"

namespace unisono::data {
namespace {

constexpr std::int64_t kMaxDatasetSize = std::int64_t{1} << 48;

}  // namespace

void check_dataset_size(const std::string& who, std::int64_t dataset_size) {
  if (dataset_size < 0 || dataset_size > kMaxDatasetSize) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: a data set of {} samples; 0 to {} are possible",
                            who,
                            dataset_size,
                            kMaxDatasetSize));
  }
}

void check_share(const std::string& who, const Share& share) {
  check_dataset_size(who, share.dataset_size);
  if (share.num_replicas < 1) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format(
            "{}: num_replicas is {}; it is the world size, at least 1", who, share.num_replicas));
  }
  if (share.rank < 0 || share.rank >= share.num_replicas) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{}: rank is {}, but {} replicas have the ranks 0 to {}; pass the "
                            "global rank, not the local one",
                            who,
                            share.rank,
                            share.num_replicas,
                            share.num_replicas - 1));
  }
}

std::int64_t size_of(const Share& share, bool drop_last) {
  const std::int64_t n_left = share.dataset_size - share.first;
  const bool has_uneven_rest = n_left % share.num_replicas != 0 && !drop_last;
  return n_left / share.num_replicas + (has_uneven_rest ? 1 : 0);
}

std::vector<std::int64_t> deal(const Share& share, std::int64_t count, const EpochOrder& order) {
  std::vector<std::int64_t> shuffled;
  if (order.shuffle) {
    shuffled = random_permutation(
        share.dataset_size,
        static_cast<std::uint64_t>(order.seed) + static_cast<std::uint64_t>(order.epoch));
  }
  std::vector<std::int64_t> indices;
  indices.reserve(static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) {
    // Past its end the order starts again: these are the repeated samples.
    const std::int64_t place =
        (share.first + share.rank + i * share.num_replicas) % share.dataset_size;
    indices.push_back(order.shuffle ? shuffled[static_cast<std::size_t>(place)] : place);
  }
  return indices;
}

}  // namespace unisono::data
