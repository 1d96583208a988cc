#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono::data {

/// One replica's part of an epoch's places: first + rank, first + rank + num_replicas, and so on.
struct Share {
  std::int64_t dataset_size;
  int num_replicas;
  int rank;
  std::int64_t first;  ///< The place where dealing starts.
};

/// Throws Error(kInvalidArgument) unless 0 <= dataset_size <= 2^48; `who` starts its message.
void check_dataset_size(const std::string& who, std::int64_t dataset_size);

/// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48;
/// `who` starts its message.
void check_share(const std::string& who, const Share& share);

/// Indices for each replica of what is left from the share's first place on: rounded down with
/// `drop_last`, else up.
[[nodiscard]] std::int64_t size_of(const Share& share, bool drop_last);

/// What decides the order of an epoch: as it is, or as torch's DistributedSampler shuffles it.
struct EpochOrder {
  bool shuffle;
  std::int64_t seed;
  std::int64_t epoch;
};

/// The first `count` indices of the share. Past its end the order starts again.
[[nodiscard]] std::vector<std::int64_t> deal(const Share& share,
                                             std::int64_t count,
                                             const EpochOrder& order);

}  // namespace unisono::data
