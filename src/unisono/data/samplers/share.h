#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace unisono::data {

/// Returns the numbers 0 to n-1 in the order of torch.randperm(n) with a CPU generator after
/// manual_seed(seed).
///
/// Compared with torch 2.13 up to n = 214,748,364, the size from which torch, and this function,
/// shuffle in another way. As in torch, only the low 32 bits of the seed count, so negative seeds
/// are valid. n is 2^48 at most; the result takes 8 bytes per number.
///
/// Throws Error(kInvalidArgument) if n is negative or too large.
[[nodiscard]] std::vector<std::int64_t> random_permutation(std::int64_t n, std::uint64_t seed);

/// Returns the numbers 0 to n-1 in the order of Python's random.Random(seed).shuffle().
///
/// Compared with CPython 3.11. As in Python, only the absolute value of the seed counts. n must be
/// at least 0; the result takes 8 bytes per number.
///
/// Source: Matsumoto and Nishimura's init_by_array(); CPython's Lib/random.py, Random.shuffle() and
/// Random._randbelow_with_getrandbits().
[[nodiscard]] std::vector<std::int64_t> python_permutation(std::int64_t n, std::int64_t seed);

/// The places of a replica in an epoch: first + rank, first + rank + num_replicas, and so on.
struct Share {
  std::int64_t dataset_size;
  int num_replicas;
  int rank;
  std::int64_t first;  ///< First place that is dealt.
};

/// Throws Error(kInvalidArgument) unless 0 <= dataset_size <= 2^48. The message starts with `who`.
void check_dataset_size(const std::string& who, std::int64_t dataset_size);

/// Throws Error(kInvalidArgument) unless 0 <= rank < num_replicas and 0 <= dataset_size <= 2^48.
/// The message starts with `who`.
void check_share(const std::string& who, const Share& share);

/// Returns the number of indices per replica from the share's first place on, rounded down with
/// `drop_last`, otherwise up.
[[nodiscard]] std::int64_t size_of(const Share& share, bool drop_last);

/// Order of an epoch: the natural order, or shuffled like torch's DistributedSampler.
struct EpochOrder {
  bool shuffle;
  std::int64_t seed;
  std::int64_t epoch;
};

/// Returns the first `count` indices of the share. The order starts again after its end.
[[nodiscard]] std::vector<std::int64_t> deal(const Share& share,
                                             std::int64_t count,
                                             const EpochOrder& order);

}  // namespace unisono::data
