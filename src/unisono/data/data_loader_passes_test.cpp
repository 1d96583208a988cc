#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/batch_sampler.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/data/samplers/evaluation_sampler.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/testing/ramp_dataset.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::drain;
using data::testing::error_of;
using data::testing::Indices;
using data::testing::iota;
using data::testing::Ramp;
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

    // In another process, perhaps with another number of workers.
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
  EXPECT_THAT(message(swapped, state), HasSubstr("is of other batches than the 5 of this pass"));
  EXPECT_THAT(message(iota(19), state), HasSubstr("go on with the same data set"));
  EXPECT_THAT(message(iota(20), {.n_taken = 6, .order = state.order}), HasSubstr("6 batches into"));
  EXPECT_THAT(message(iota(20), {.n_taken = -1, .order = state.order}), HasSubstr("-1 batches"));

  DataLoader of_other_batches(std::make_shared<Ramp>(20), options(5));
  EXPECT_THAT(error_of([&] { of_other_batches.start(iota(20), state); }).message,
              HasSubstr("batch size"));
  // The pass that was there goes on.
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
}  // namespace unisono
