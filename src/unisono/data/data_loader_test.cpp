#include "unisono/data/data_loader.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>
#include <stdexcept>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/mutex.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"
#include "unisono/data/testing/ramp_dataset.h"

#include "support/throws_error.h"

namespace unisono {
namespace {

using data::testing::drain;
using data::testing::Indices;
using data::testing::iota;
using data::testing::Ramp;
using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class DataLoaderWorkers : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] DataLoaderOptions options(std::int64_t batch_size) const {
    return {.batch_size = batch_size, .num_workers = GetParam()};
  }
};

TEST_P(DataLoaderWorkers, BatchesComeInTheOrderOfTheIndices) {
  DataLoader loader(std::make_shared<Ramp>(10), options(3));
  loader.start({9, 2, 2, 0, 5, 1, 7});
  EXPECT_EQ(loader.n_batches(), 3);
  EXPECT_THAT(drain(loader), ElementsAre(Indices{-9, -2, -2}, Indices{0, -5, -1}, Indices{-7}));
  EXPECT_FALSE(loader.next());
}

TEST_P(DataLoaderWorkers, DropLastLeavesOutTheSmallBatch) {
  DataLoaderOptions dropping = options(3);
  dropping.drop_last = true;
  DataLoader loader(std::make_shared<Ramp>(10), dropping);
  loader.start(iota(8));
  EXPECT_EQ(loader.n_batches(), 2);
  EXPECT_THAT(drain(loader), ElementsAre(Indices{0, -1, -2}, Indices{-3, -4, -5}));
  loader.start(iota(6));
  EXPECT_EQ(drain(loader).size(), 2U);
}

TEST_P(DataLoaderWorkers, ManyBatchesAndPasses) {
  DataLoader loader(std::make_shared<Ramp>(1000), options(7));
  for (int pass = 0; pass < 3; ++pass) {
    loader.start(iota(1000));
    std::int64_t expected = 0;
    for (const Indices& labels : drain(loader)) {
      for (const std::int64_t label : labels) {
        ASSERT_EQ(label, -expected++);
      }
    }
    EXPECT_EQ(expected, 1000);
  }
}

TEST_P(DataLoaderWorkers, ANewPassDropsTheRestOfTheOldOne) {
  DataLoader loader(std::make_shared<Ramp>(1000), options(2));
  for (int round = 0; round < 50; ++round) {
    loader.start(iota(1000));
    for (int batch = 0; batch < round % 5; ++batch) {
      ASSERT_TRUE(loader.next());
    }
  }
  loader.start({4, 3, 2});
  EXPECT_THAT(drain(loader), ElementsAre(Indices{-4, -3}, Indices{-2}));
}

TEST_P(DataLoaderWorkers, AnEmptyPassHasNoBatch) {
  DataLoader loader(std::make_shared<Ramp>(0), options(2));
  loader.start({});
  EXPECT_EQ(loader.n_batches(), 0);
  EXPECT_FALSE(loader.next());
}

TEST_P(DataLoaderWorkers, AnExceptionReachesTheConsumerWithTheSampleAtItsBatch) {
  const auto dataset = std::make_shared<Ramp>(100, [](std::int64_t index) {
    if (index == 41) {
      throw Error(ErrorCode::kNotFound, "no file 41.png");
    }
  });
  DataLoader loader(dataset, options(10));
  loader.start(iota(100));
  for (int batch = 0; batch < 4; ++batch) {
    EXPECT_TRUE(loader.next());
  }
  for (int again = 0; again < 2; ++again) {
    const CaughtError error = error_of([&] { (void)loader.next(); });
    EXPECT_EQ(error.code, ErrorCode::kNotFound);
    EXPECT_EQ(error.message, "DataLoader: sample 41 (batch 4): no file 41.png");
  }
  loader.start(iota(40));
  EXPECT_EQ(drain(loader).size(), 4U);
}

TEST_P(DataLoaderWorkers, ForeignExceptionsAreNamedToo) {
  const auto dataset = std::make_shared<Ramp>(10, [](std::int64_t index) {
    if (index == 3) {
      throw std::runtime_error("bad pixel");
    }
    if (index == 4) {
      throw 4;  // NOLINT(hicpp-exception-baseclass): what a data set might do
    }
  });
  DataLoader loader(dataset, options(1));
  loader.start({3});
  EXPECT_EQ(error_of([&] { (void)loader.next(); }).message,
            "DataLoader: sample 3 (batch 0): bad pixel");
  loader.start({4});
  const CaughtError error = error_of([&] { (void)loader.next(); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("sample 4 (batch 0): an exception of unknown type"));
}

TEST_P(DataLoaderWorkers, BatchesOutliveTheirLoader) {
  std::vector<data::Batch> batches;
  {
    DataLoader loader(std::make_shared<Ramp>(10), options(2));
    loader.start(iota(10));
    while (std::optional<data::Batch> batch = loader.next()) {
      batches.push_back(std::move(*batch));
    }
  }
  ASSERT_EQ(batches.size(), 5U);
  EXPECT_THAT(batches[0].values<float>(), ElementsAre(0.0F, 0.5F, 1.0F, 1.5F));
  EXPECT_THAT(batches[4].labels(), ElementsAre(-8, -9));
  EXPECT_EQ(batches[4].size(), 2);
  EXPECT_THAT(batches[4].sample_shape(), ElementsAre(2));
}

TEST_P(DataLoaderWorkers, BatchesThatAreHeldKeepTheirValues) {
  DataLoader loader(std::make_shared<Ramp>(100), options(5));
  loader.start(iota(100));
  std::vector<data::Batch> held;
  while (std::optional<data::Batch> batch = loader.next()) {
    held.push_back(std::move(*batch));
  }
  ASSERT_EQ(held.size(), 20U);
  for (std::size_t batch = 0; batch < held.size(); ++batch) {
    EXPECT_EQ(held[batch].values<float>()[0], static_cast<float>(5 * batch));
  }
}

TEST_P(DataLoaderWorkers, MemoryIsUsedAgain) {
  DataLoader loader(std::make_shared<Ramp>(1000), options(5));
  loader.start(iota(1000));
  std::set<const std::byte*> blocks;
  while (const std::optional<data::Batch> batch = loader.next()) {
    blocks.insert(batch->bytes().data());
  }
  // Batches ahead, batches that workers fill, and the consumer's batch.
  EXPECT_LE(blocks.size(), static_cast<std::size_t>(2 * GetParam() + GetParam() + 2));
}

INSTANTIATE_TEST_SUITE_P(NumWorkers, DataLoaderWorkers, ::testing::Values(0, 1, 2, 3, 8));

TEST(DataLoader, WrongArgumentsAreExplained) {
  const auto dataset = std::make_shared<Ramp>(10);
  const auto message = [&](const DataLoaderOptions& options) {
    const CaughtError error = error_of([&] { const DataLoader loader(dataset, options); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message({.batch_size = 0}), HasSubstr("batch_size is 0"));
  EXPECT_THAT(message({.num_workers = -1}), HasSubstr("num_workers is -1"));
  EXPECT_THAT(message({.num_workers = 2000}), HasSubstr("num_workers is 2000"));
  EXPECT_THAT(message({.prefetch_factor = 0}), HasSubstr("prefetch_factor is 0"));
  EXPECT_THAT(message({.timeout = std::chrono::nanoseconds(0)}), HasSubstr("timeout"));
  EXPECT_EQ(error_of([] { const DataLoader loader(nullptr); }).message,
            "DataLoader: the data set is null");

  DataLoader loader(dataset);
  EXPECT_THAT(error_of([&] { (void)loader.next(); }).message, HasSubstr("before start(indices)"));
  for (const std::int64_t index : {std::int64_t{-1}, std::int64_t{10}}) {
    EXPECT_EQ(
        error_of([&] { loader.start({0, index}); }).message,
        "DataLoader: index " + std::to_string(index) + " is outside a data set of 10 samples");
  }
}

TEST(DataLoader, ValuesOfAnotherTypeAreRefused) {
  DataLoader loader(std::make_shared<Ramp>(1));
  loader.start({0});
  const std::optional<data::Batch> batch = loader.next();
  EXPECT_THAT(error_of([&] { (void)batch->values<double>(); }).message,
              HasSubstr("values of type f64 asked for, but its samples are f32"));
}

TEST(DataLoader, PinMemoryIsAcceptedAndReportedOnceWithoutAccelerator) {
  ASSERT_EQ(::setenv("CUDA_VISIBLE_DEVICES", "", 1), 0);
  ::testing::internal::CaptureStderr();
  for (const int num_workers : {0, 2}) {
    DataLoader loader(std::make_shared<Ramp>(4),
                      {.batch_size = 2, .num_workers = num_workers, .pin_memory = true});
    loader.start(iota(4));
    EXPECT_THAT(drain(loader), ElementsAre(Indices{0, -1}, Indices{-2, -3}));
  }
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono data] DataLoader: pin_memory has no effect: there is no accelerator "
            "(CUDA_VISIBLE_DEVICES=\"\" hides all)\n");
  ::unsetenv("CUDA_VISIBLE_DEVICES");
}

}  // namespace

namespace {

using data::testing::drain;
using data::testing::Indices;
using data::testing::iota;
using data::testing::Ramp;
using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Batches = std::vector<Indices>;

class DataLoaderPasses : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] DataLoaderOptions options(std::int64_t batch_size) const {
    return {.batch_size = batch_size, .num_workers = GetParam()};
  }
};

TEST_P(DataLoaderPasses, TakesAnySampler) {
  DataLoader loader(std::make_shared<Ramp>(10), options(2));
  DistributedSampler sampler(10, 2, 0);
  loader.start(sampler);
  EXPECT_THAT(drain(loader), ElementsAre(Indices{-4, -7}, Indices{-3, 0}, Indices{-6}));
  loader.start(EvaluationSampler(3, 1, 0));
  EXPECT_THAT(drain(loader), ElementsAre(Indices{0, -1}, Indices{-2}));
}

TEST_P(DataLoaderPasses, ASamplersBatchesAreThoseOfTheLoadersOwn) {
  DistributedSampler sampler(101, 3, 2);
  DataLoader cutting(std::make_shared<Ramp>(101), options(4));
  cutting.start(sampler);
  DataLoader ready(std::make_shared<Ramp>(101), options(1));
  sampler.set_epoch(0);
  ready.start(BatchSampler(sampler, 4));
  EXPECT_EQ(ready.n_batches(), 9);
  EXPECT_EQ(drain(ready), drain(cutting));
}

TEST_P(DataLoaderPasses, GoOnInTheMiddleAsIfNothingHadHappened) {
  DistributedSampler sampler(50, 2, 1, {.seed = 3});
  sampler.set_epoch(4);
  DataLoader undisturbed(std::make_shared<Ramp>(50), options(3));
  undisturbed.start(sampler);
  const Batches all = drain(undisturbed);
  for (std::size_t n_taken = 0; n_taken <= all.size(); ++n_taken) {
    DataLoader first(std::make_shared<Ramp>(50), options(3));
    first.start(sampler);
    for (std::size_t batch = 0; batch < n_taken; ++batch) {
      ASSERT_TRUE(first.next());
    }
    const LoaderState state = first.state();
    EXPECT_EQ(state.n_taken, static_cast<std::int64_t>(n_taken));

    // Continues in another process, possibly with another number of workers.
    DataLoader second(std::make_shared<Ramp>(50), {.batch_size = 3, .num_workers = 2});
    second.start(sampler, state);
    EXPECT_EQ(second.n_batches(), static_cast<std::int64_t>(all.size()));
    EXPECT_EQ(drain(second),
              Batches(all.begin() + static_cast<std::ptrdiff_t>(n_taken), all.end()));
    EXPECT_EQ(second.state(), undisturbed.state());
  }
}

TEST_P(DataLoaderPasses, WhatWasTakenIsNotLoadedAgain) {
  Mutex mutex;
  std::set<std::int64_t> loaded;
  const auto dataset = std::make_shared<Ramp>(20, [&](std::int64_t index) {
    const MutexLock lock(mutex);
    loaded.insert(index);
  });
  DataLoader loader(dataset, options(4));
  loader.start(iota(20));
  LoaderState state = loader.state();
  (void)drain(loader);
  loaded.clear();
  state.n_taken = 3;
  loader.start(iota(20), state);
  EXPECT_EQ(drain(loader).size(), 2U);
  EXPECT_EQ(loaded, (std::set<std::int64_t>{12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST_P(DataLoaderPasses, AStateOfAnotherPassIsRefused) {
  DataLoader loader(std::make_shared<Ramp>(20), options(4));
  loader.start(iota(20));
  const LoaderState state = loader.state();
  const auto message = [&](const Indices& indices, const LoaderState& from) {
    const CaughtError error = error_of([&] { loader.start(indices, from); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  Indices swapped = iota(20);
  std::swap(swapped[0], swapped[1]);
  EXPECT_THAT(message(swapped, state), HasSubstr("does not belong to the 5 batches of this pass"));
  EXPECT_THAT(message(iota(19), state), HasSubstr("go on with the same data set"));
  EXPECT_THAT(message(iota(20), {.n_taken = 6, .order = state.order}), HasSubstr("6 batches into"));
  EXPECT_THAT(message(iota(20), {.n_taken = -1, .order = state.order}), HasSubstr("-1 batches"));

  DataLoader of_other_batches(std::make_shared<Ramp>(20), options(5));
  EXPECT_THAT(error_of([&] { of_other_batches.start(iota(20), state); }).message,
              HasSubstr("batch size"));
  // The earlier pass continues.
  EXPECT_EQ(drain(loader).size(), 5U);
}

INSTANTIATE_TEST_SUITE_P(NumWorkers, DataLoaderPasses, ::testing::Values(0, 1, 3));

TEST(DataLoader, ReadyBatchesLeaveNoChoiceOfSizes) {
  DataLoader of_two(std::make_shared<Ramp>(4), {.batch_size = 2});
  EXPECT_THAT(error_of([&] { of_two.start_batches({{0, 1}}); }).message,
              HasSubstr("batch_size 2 and drop_last false were asked for"));
  DataLoader dropping(std::make_shared<Ramp>(4), {.drop_last = true});
  EXPECT_THAT(error_of([&] { dropping.start_batches({{0, 1}}); }).message,
              HasSubstr("drop_last true"));
  DataLoader loader(std::make_shared<Ramp>(4));
  EXPECT_THAT(error_of([&] { loader.start_batches({{0, 1}, {}}); }).message,
              HasSubstr("a batch has no samples"));
  EXPECT_THAT(error_of([&] { loader.start_batches({{0, 4}}); }).message,
              HasSubstr("index 4 is outside"));
  EXPECT_THAT(error_of([&] { (void)loader.state(); }).message, HasSubstr("before start"));
}

}  // namespace

namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct Text {
  std::size_t n_tokens = 0;
  std::int64_t label = 0;
};

// Text i has i tokens and the label 10 * i.
class Texts {
 public:
  [[nodiscard]] std::int64_t size() const { return 6; }

  [[nodiscard]] Text sample(std::int64_t index) const {
    if (index == 5) {
      throw Error(ErrorCode::kNotFound, "no text 5");
    }
    return {.n_tokens = static_cast<std::size_t>(index), .label = 10 * index};
  }
};

std::size_t longest_of(const std::vector<Text>& texts) {
  return std::ranges::max_element(texts, {}, &Text::n_tokens)->n_tokens;
}

class CollatingLoaderWorkers : public ::testing::TestWithParam<int> {
 protected:
  [[nodiscard]] DataLoaderOptions options(std::int64_t batch_size) const {
    return {.batch_size = batch_size, .num_workers = GetParam()};
  }
};

TEST_P(CollatingLoaderWorkers, TheCallersFunctionMakesTheBatch) {
  CollatingLoader loader(
      std::make_shared<Texts>(),
      [](const std::vector<Text>& samples) {
        return std::accumulate(samples.begin(),
                               samples.end(),
                               std::string(),
                               [](const std::string& text, const Text& sample) {
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
  CollatingLoader loader(std::make_shared<Texts>(), longest_of, options(1));
  loader.start(LengthBucketedSampler({0, 1, 2, 3, 4}, 1, 0, {.batch_size = 2, .shuffle = false}));
  EXPECT_EQ(loader.n_batches(), 3);
  std::vector<std::size_t> longest;
  while (const std::optional<std::size_t> batch = loader.next()) {
    longest.push_back(*batch);
  }
  EXPECT_THAT(longest, ElementsAre(1, 3, 4));
}

TEST_P(CollatingLoaderWorkers, FailuresNameTheSampleOrTheBatch) {
  CollatingLoader loader(
      std::make_shared<Texts>(),
      [](const std::vector<Text>& samples) {
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
  EXPECT_THAT(
      error_of([] { const CollatingLoader loader(std::shared_ptr<Texts>{}, longest_of); }).message,
      HasSubstr("the data set is null"));
}

}  // namespace

namespace {

using data::testing::Ramp;
using test::CaughtError;
using test::error_of;
using ::testing::HasSubstr;

TEST(LoaderTiming, EachNumberOfWorkersIsTimed) {
  const std::vector<LoaderTiming> timings =
      time_loaders(std::make_shared<Ramp>(100),
                   {.batch_size = 7, .max_workers = 3, .duration = std::chrono::milliseconds(1)});
  ASSERT_EQ(timings.size(), 4U);
  for (std::size_t i = 0; i < timings.size(); ++i) {
    EXPECT_EQ(timings[i].num_workers, static_cast<int>(i));
    EXPECT_GT(timings[i].samples_per_second, 0);
  }
}

TEST(LoaderTiming, TheBestAreTheFewestThatAreNearlyAsFastAsTheFastest) {
  const auto best = [](const std::vector<LoaderTiming>& timings) {
    return best_timing(timings).num_workers;
  };
  EXPECT_EQ(best({{0, 50}, {1, 96}, {2, 100}, {3, 99}}), 1);
  EXPECT_EQ(best({{0, 50}, {1, 94}, {2, 100}, {3, 120}}), 3);
  EXPECT_EQ(best({{0, 100}, {1, 60}}), 0);
  EXPECT_EQ(best({{0, 1}}), 0);
}

TEST(LoaderTiming, ExplainsImpossibleArguments) {
  const CaughtError error = error_of([] { (void)time_loaders(std::make_shared<Ramp>(0)); });
  EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(error.message, HasSubstr("0 samples"));
  EXPECT_THAT(error_of([] { (void)time_loaders(nullptr); }).message, HasSubstr("0 samples"));
  EXPECT_THAT(
      error_of([] { (void)time_loaders(std::make_shared<Ramp>(1), {.max_workers = -1}); }).message,
      HasSubstr("up to -1 workers"));
}

}  // namespace
}  // namespace unisono
