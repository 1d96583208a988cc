#include "unisono/data/data_loader.h"

#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/data/batch.h"
#include "unisono/data/dataset.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Indices = std::vector<std::int64_t>;

// Sample i is {i, i + 0.5}, its label -i; `on_load` runs before each load.
class Ramp final : public Dataset {
 public:
  explicit Ramp(std::int64_t size, std::function<void(std::int64_t)> on_load = nullptr)
      : size_(size), on_load_(std::move(on_load)) {}

  [[nodiscard]] std::int64_t size() const override { return size_; }

  [[nodiscard]] DType dtype() const override { return DType::kFloat32; }

  [[nodiscard]] Indices sample_shape() const override { return {2}; }

  std::int64_t load(std::int64_t index, std::span<std::byte> into) const override {
    if (on_load_) {
      on_load_(index);
    }
    const std::array<float, 2> sample{static_cast<float>(index), static_cast<float>(index) + 0.5F};
    std::memcpy(into.data(), sample.data(), into.size());
    return -index;
  }

 private:
  std::int64_t size_;
  std::function<void(std::int64_t)> on_load_;
};

// A door that threads wait at until it is opened.
class Gate {
 public:
  void open() {
    const MutexLock lock(mutex_);
    is_open_ = true;
    opened_.notify_all();
  }

  void pass() {
    const MutexLock lock(mutex_);
    ++n_came_;
    came_.notify_all();
    while (!is_open_) {
      opened_.wait(mutex_);
    }
  }

  // Until `count` threads have come to the gate, ever.
  void wait_for(int count) {
    const MutexLock lock(mutex_);
    while (n_came_ < count) {
      came_.wait(mutex_);
    }
  }

 private:
  Mutex mutex_;
  Condition opened_;
  Condition came_;
  bool is_open_ UNISONO_GUARDED_BY(mutex_) = false;
  int n_came_ UNISONO_GUARDED_BY(mutex_) = 0;
};

Indices iota(std::int64_t count) {
  Indices indices(static_cast<std::size_t>(count));
  std::iota(indices.begin(), indices.end(), 0);
  return indices;
}

// The labels of each batch of the rest of the pass, and a check that samples fit their labels.
std::vector<Indices> drain(DataLoader& loader) {
  std::vector<Indices> batches;
  while (const std::optional<Batch> batch = loader.next()) {
    const std::span<const float> values = batch->values<float>();
    EXPECT_EQ(values.size(), batch->labels().size() * 2);
    for (std::size_t place = 0; place < batch->labels().size(); ++place) {
      EXPECT_EQ(values[2 * place], static_cast<float>(-batch->labels()[place]));
      EXPECT_EQ(values[2 * place + 1], values[2 * place] + 0.5F);
    }
    batches.emplace_back(batch->labels().begin(), batch->labels().end());
  }
  return batches;
}

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

TEST_P(DataLoaderWorkers, ABatchOutlivesItsLoader) {
  std::optional<Batch> batch;
  {
    DataLoader loader(std::make_shared<Ramp>(10), options(2));
    loader.start(iota(10));
    batch = loader.next();
  }
  EXPECT_THAT(batch->values<float>(), ElementsAre(0.0F, 0.5F, 1.0F, 1.5F));
  EXPECT_THAT(batch->labels(), ElementsAre(0, -1));
  EXPECT_EQ(batch->size(), 2);
  EXPECT_THAT(batch->sample_shape(), ElementsAre(2));
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

TEST(DataLoader, WorkersLoadAtMostThePrefetchDepthAhead) {
  constexpr int kWorkers = 2;
  constexpr int kPrefetchFactor = 3;
  constexpr int kAhead = kWorkers * kPrefetchFactor;
  Mutex mutex;
  Condition loaded;
  std::int64_t n_loaded = 0;
  const auto dataset = std::make_shared<Ramp>(1000, [&](std::int64_t) {
    const MutexLock lock(mutex);
    ++n_loaded;
    loaded.notify_all();
  });
  DataLoader loader(dataset, {.num_workers = kWorkers, .prefetch_factor = kPrefetchFactor});
  loader.start(iota(1000));
  for (int n_taken = 0; n_taken < 200; ++n_taken) {
    {
      const MutexLock lock(mutex);
      // They come this far without the consumer ...
      while (n_loaded < n_taken + kAhead) {
        loaded.wait(mutex);
      }
      // ... and no further.
      EXPECT_EQ(n_loaded, n_taken + kAhead);
    }
    ASSERT_TRUE(loader.next());
  }
}

TEST(DataLoader, WorkersLoadAtTheSameTime) {
  constexpr int kWorkers = 3;
  Gate gate;
  DataLoader loader(std::make_shared<Ramp>(3, [&](std::int64_t) { gate.pass(); }),
                    {.num_workers = kWorkers});
  loader.start(iota(3));
  gate.wait_for(kWorkers);
  gate.open();
  EXPECT_EQ(drain(loader).size(), 3U);
}

TEST(DataLoader, ADroppedPassIsLeftInTheMiddleOfABatch) {
  Gate gate;
  std::atomic<int> n_loaded = 0;
  const auto dataset = std::make_shared<Ramp>(1000, [&](std::int64_t) {
    // Relaxed: the loader's own lock orders it before the check below.
    n_loaded.fetch_add(1, std::memory_order_relaxed);
    gate.pass();
  });
  DataLoader loader(dataset, {.batch_size = 500, .num_workers = 2});
  loader.start(iota(1000));
  gate.wait_for(2);
  loader.start({7});
  gate.open();
  EXPECT_THAT(drain(loader), ElementsAre(Indices{-7}));
  EXPECT_EQ(n_loaded.load(std::memory_order_relaxed), 3);
}

TEST(DataLoader, DestructionInTheMiddleOfAPassWaitsOnlyForTheSamplesInHand) {
  constexpr std::int64_t kSamples = 1'000'000;
  std::atomic<std::int64_t> n_loaded = 0;
  Gate gate;
  const auto dataset = std::make_shared<Ramp>(kSamples, [&](std::int64_t) {
    // Relaxed: the loader joins its workers before the check below.
    n_loaded.fetch_add(1, std::memory_order_relaxed);
    gate.pass();
    std::this_thread::yield();
  });
  std::optional<DataLoader> loader;
  loader.emplace(dataset, DataLoaderOptions{.batch_size = kSamples / 2, .num_workers = 2});
  loader->start(iota(kSamples));
  gate.wait_for(2);
  std::thread opener([&] { gate.open(); });
  loader.reset();
  opener.join();
  EXPECT_LT(n_loaded.load(std::memory_order_relaxed), kSamples);
}

TEST(DataLoader, WorkersAreNamedAndInitializedOnceEach) {
  Mutex mutex;
  std::vector<int> initialized;
  std::set<std::string> names;
  const auto thread_name = [] {
    std::array<char, 16> name{};
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    return std::string(name.data());
  };
  Gate gate;
  DataLoader loader(std::make_shared<Ramp>(30, [&](std::int64_t) { gate.pass(); }),
                    {.num_workers = 3, .worker_init_fn = [&](int worker) {
                       const MutexLock lock(mutex);
                       initialized.push_back(worker);
                       names.insert(thread_name());
                     }});
  loader.start(iota(30));
  gate.wait_for(3);
  gate.open();
  (void)drain(loader);
  loader.start(iota(30));
  (void)drain(loader);
  const MutexLock lock(mutex);
  EXPECT_THAT(initialized, ::testing::UnorderedElementsAre(0, 1, 2));
  EXPECT_THAT(names, ElementsAre("uni-load-0", "uni-load-1", "uni-load-2"));
}

TEST(DataLoader, AFailedWorkerInitEndsTheLoaderForGood) {
  DataLoader loader(std::make_shared<Ramp>(10), {.num_workers = 1, .worker_init_fn = [](int) {
                                                   throw std::runtime_error("no codec");
                                                 }});
  for (int pass = 0; pass < 2; ++pass) {
    loader.start(iota(10));
    EXPECT_EQ(error_of([&] { (void)loader.next(); }).message,
              "DataLoader: worker_init_fn of worker 0: no codec");
  }
}

TEST(DataLoader, NextGivesUpAfterItsTimeout) {
  Gate gate;
  DataLoader loader(std::make_shared<Ramp>(4, [&](std::int64_t) { gate.pass(); }),
                    {.num_workers = 1, .timeout = std::chrono::milliseconds(20)});
  loader.start({3, 1});
  const CaughtError error = error_of([&] { (void)loader.next(); });
  gate.open();
  EXPECT_EQ(error.code, ErrorCode::kTimeout);
  EXPECT_THAT(
      error.message,
      AllOf(HasSubstr("batch 0 of 2 was not loaded within 0.02 s"), HasSubstr("sample is 3")));
}

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

}  // namespace
}  // namespace unisono
