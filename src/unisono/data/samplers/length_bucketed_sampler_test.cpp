#include "unisono/data/samplers/length_bucketed_sampler.h"

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/data/samplers/distributed_sampler.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;
using Batches = std::vector<Indices>;

// Returns many short samples and few long samples, as in text data.
Indices some_lengths(std::size_t count) {
  data::Random random(5);
  Indices lengths;
  for (std::size_t i = 0; i < count; ++i) {
    const double uniform = random.uniform();
    lengths.push_back(10 + static_cast<std::int64_t>(990 * uniform * uniform * uniform));
  }
  return lengths;
}

std::int64_t padded_size(const Batches& batches, const Indices& lengths) {
  std::int64_t size = 0;
  for (const Indices& batch : batches) {
    std::int64_t longest = 0;
    for (const std::int64_t sample : batch) {
      longest = std::max(longest, lengths[static_cast<std::size_t>(sample)]);
    }
    size += longest * static_cast<std::int64_t>(batch.size());
  }
  return size;
}

TEST(LengthBucketedSampler, InOrderOneBucketIsSortedByLength) {
  const LengthBucketedSampler sampler(
      {5, 1, 4, 2, 3, 9, 8}, 1, 0, {.batch_size = 2, .bucket_batches = 2, .shuffle = false});
  EXPECT_THAT(sampler.batches(),
              ElementsAre(Indices{1, 3}, Indices{2, 0}, Indices{4, 6}, Indices{5}));
  EXPECT_EQ(sampler.num_batches(), 4);
}

TEST(LengthBucketedSampler, PadsAFractionOfWhatPlainBatchesPad) {
  const Indices lengths = some_lengths(5000);
  DistributedSampler plain(5000, 1, 0);
  const std::int64_t unsorted = padded_size(BatchSampler(plain, 32).batches(), lengths);
  const std::int64_t sorted =
      padded_size(LengthBucketedSampler(lengths, 1, 0, {.batch_size = 32}).batches(), lengths);
  std::int64_t content = 0;
  for (const std::int64_t length : lengths) {
    content += length;
  }
  EXPECT_LT(10 * (sorted - content), unsorted - content);
}

TEST(LengthBucketedSampler, EverySampleComesOnceAndReplicasStayInStep) {
  for (const std::size_t size : {0U, 1U, 5U, 64U, 1000U}) {
    for (const int num_replicas : {1, 2, 3}) {
      for (const bool drop_last : {false, true}) {
        std::multiset<std::int64_t> seen;
        std::vector<std::size_t> sizes_of_first;
        for (int rank = 0; rank < num_replicas; ++rank) {
          LengthBucketedSampler sampler(
              some_lengths(size),
              num_replicas,
              rank,
              {.batch_size = 4, .bucket_batches = 3, .drop_last = drop_last});
          sampler.set_epoch(2);
          const Batches batches = sampler.batches();
          EXPECT_EQ(static_cast<std::int64_t>(batches.size()), sampler.num_batches());
          std::vector<std::size_t> sizes;
          for (const Indices& batch : batches) {
            seen.insert(batch.begin(), batch.end());
            sizes.push_back(batch.size());
          }
          sizes_of_first = rank == 0 ? sizes : sizes_of_first;
          EXPECT_EQ(sizes, sizes_of_first);
        }
        const std::size_t n_distinct = std::set<std::int64_t>(seen.begin(), seen.end()).size();
        const auto n_replicas = static_cast<std::size_t>(num_replicas);
        EXPECT_EQ(n_distinct, drop_last ? size / (4 * n_replicas) * 4 * n_replicas : size);
        EXPECT_LE(seen.size() - n_distinct, drop_last ? 0 : n_replicas - 1);
      }
    }
  }
}

TEST(LengthBucketedSampler, ReplicasGetSimilarLengthsInTheSameStep) {
  const Indices lengths = some_lengths(1000);
  const auto longest_of = [&](int rank) {
    Indices longest;
    const LengthBucketedSampler sampler(lengths, 2, rank, {.batch_size = 8});
    for (const Indices& batch : sampler.batches()) {
      longest.push_back(lengths[static_cast<std::size_t>(batch.back())]);
    }
    return longest;
  };
  const Indices first = longest_of(0);
  const Indices second = longest_of(1);
  ASSERT_EQ(first.size(), second.size());
  // Adjacent entries of one sorted list.
  for (std::size_t step = 0; step < first.size(); ++step) {
    EXPECT_LE(first[step], second[step]);
  }
}

TEST(LengthBucketedSampler, EpochsDifferAndComeBack) {
  LengthBucketedSampler sampler(some_lengths(100), 1, 0, {.batch_size = 8, .bucket_batches = 4});
  const Batches first = sampler.batches();
  sampler.set_epoch(1);
  EXPECT_NE(sampler.batches(), first);
  sampler.set_epoch(0);
  EXPECT_EQ(sampler.batches(), first);
}

TEST(LengthBucketedSampler, HugeBucketsAreOne) {
  const LengthBucketedSampler sampler(
      {3, 1, 2},
      1,
      0,
      {.batch_size = std::int64_t{1} << 40, .bucket_batches = std::int64_t{1} << 40});
  EXPECT_THAT(sampler.batches(), ElementsAre(Indices{1, 2, 0}));
}

TEST(LengthBucketedSampler, ExplainsImpossibleArguments) {
  const auto message = [](const LengthBucketedSamplerOptions& options, int rank) {
    const CaughtError error =
        error_of([&] { (void)LengthBucketedSampler({1, 2}, 2, rank, options); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message({.batch_size = 0}, 0), HasSubstr("batch_size is 0"));
  EXPECT_THAT(message({.bucket_batches = 0}, 0), HasSubstr("bucket_batches is 0"));
  EXPECT_THAT(message({.batch_size = std::int64_t{1} << 40}, 0),
              HasSubstr("batch_size of all replicas together"));
  EXPECT_THAT(message({}, 2), HasSubstr("rank is 2"));
}

}  // namespace
}  // namespace unisono
