#include "unisono/data/data_loader.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/batch.h"
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
  std::vector<Batch> batches;
  {
    DataLoader loader(std::make_shared<Ramp>(10), options(2));
    loader.start(iota(10));
    while (std::optional<Batch> batch = loader.next()) {
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
  std::vector<Batch> held;
  while (std::optional<Batch> batch = loader.next()) {
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
  while (const std::optional<Batch> batch = loader.next()) {
    blocks.insert(batch->bytes().data());
  }
  // Those ahead, those that workers fill, and the consumer's.
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
  const std::optional<Batch> batch = loader.next();
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
}  // namespace unisono
