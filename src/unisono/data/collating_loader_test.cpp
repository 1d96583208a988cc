#include "unisono/data/collating_loader.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/loader_base.h"
#include "unisono/data/pad_to_longest.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Text i has i tokens, all i, and the label 10 * i.
class Texts {
 public:
  [[nodiscard]] std::int64_t size() const { return 6; }

  [[nodiscard]] TokenSample sample(std::int64_t index) const {
    if (index == 5) {
      throw Error(ErrorCode::kNotFound, "no text 5");
    }
    return {.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(index), index),
            .label = 10 * index};
  }
};

class CollatingLoaderWorkers : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] DataLoaderOptions options(std::int64_t batch_size) const {
    return {.batch_size = batch_size, .num_workers = GetParam()};
  }
};

TEST_P(CollatingLoaderWorkers, TextsArePaddedToTheLongestOfTheirBatch) {
  CollatingLoader loader(std::make_shared<Texts>(), PadToLongest{.pad_token = -1}, options(2));
  loader.start({1, 3, 0, 2, 0});
  const std::optional<PaddedBatch> first = loader.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), 2);
  EXPECT_EQ(first->longest, 3);
  EXPECT_THAT(first->tokens, ElementsAre(1, -1, -1, 3, 3, 3));
  EXPECT_THAT(first->lengths, ElementsAre(1, 3));
  EXPECT_THAT(first->labels, ElementsAre(10, 30));
  const std::optional<PaddedBatch> second = loader.next();
  ASSERT_TRUE(second);
  EXPECT_THAT(second->row(0), ElementsAre(-1, -1));
  EXPECT_THAT(second->row(1), ElementsAre(2, 2));
  const std::optional<PaddedBatch> empty_texts = loader.next();
  ASSERT_TRUE(empty_texts);
  EXPECT_THAT(empty_texts->tokens, IsEmpty());
  EXPECT_THAT(empty_texts->lengths, ElementsAre(0));
  EXPECT_FALSE(loader.next());
}

TEST_P(CollatingLoaderWorkers, TheCallersFunctionMakesTheBatch) {
  CollatingLoader loader(
      std::make_shared<Texts>(),
      [](const std::vector<TokenSample>& samples) {
        return std::accumulate(samples.begin(),
                               samples.end(),
                               std::string(),
                               [](const std::string& text, const TokenSample& sample) {
                                 return text + std::to_string(sample.label) + " ";
                               });
      },
      options(3));
  loader.start({4, 0, 2, 1});
  EXPECT_EQ(loader.next(), "40 0 20 ");
  EXPECT_EQ(loader.next(), "10 ");
  EXPECT_EQ(loader.next(), std::nullopt);
}

TEST_P(CollatingLoaderWorkers, TakesTheBatchesOfASampler) {
  CollatingLoader loader(std::make_shared<Texts>(), PadToLongest(), options(1));
  loader.start(LengthBucketedSampler({0, 1, 2, 3, 4}, 1, 0, {.batch_size = 2, .shuffle = false}));
  EXPECT_EQ(loader.n_batches(), 3);
  std::vector<std::int64_t> longest;
  while (const std::optional<PaddedBatch> batch = loader.next()) {
    longest.push_back(batch->longest);
  }
  EXPECT_THAT(longest, ElementsAre(1, 3, 4));
}

TEST_P(CollatingLoaderWorkers, FailuresNameTheSampleOrTheBatch) {
  CollatingLoader loader(
      std::make_shared<Texts>(),
      [](const std::vector<TokenSample>& samples) {
        if (samples.front().label == 20) {
          throw std::runtime_error("twenty");
        }
        return 0;
      },
      options(2));
  loader.start({0, 1, 4, 5});
  EXPECT_TRUE(loader.next());
  const CaughtError of_sample = error_of([&] { (void)loader.next(); });
  EXPECT_EQ(of_sample.code, ErrorCode::kNotFound);
  EXPECT_EQ(of_sample.message, "DataLoader: sample 5 (batch 1): no text 5");
  loader.start({2, 1});
  const CaughtError of_batch = error_of([&] { (void)loader.next(); });
  EXPECT_EQ(of_batch.code, ErrorCode::kCorruptData);
  EXPECT_EQ(of_batch.message, "DataLoader: batch 0: twenty");
}

INSTANTIATE_TEST_SUITE_P(NumWorkers, CollatingLoaderWorkers, ::testing::Values(0, 1, 3));

TEST(CollatingLoader, ANullSourceIsExplained) {
  EXPECT_THAT(error_of([] {
                const CollatingLoader loader(std::shared_ptr<Texts>{}, PadToLongest{});
              }).message,
              HasSubstr("the data set is null"));
}

}  // namespace
}  // namespace unisono
