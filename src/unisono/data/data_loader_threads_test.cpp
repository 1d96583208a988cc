#include <pthread.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/mutex.h"
#include "unisono/data/data_loader.h"
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
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// A gate at which threads wait until the gate is opened.
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

  // Waits until `count` threads in total have arrived at the gate.
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

TEST(DataLoaderThreads, WorkersLoadAtMostThePrefetchDepthAhead) {
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
      // Workers load up to this limit without the consumer ...
      while (n_loaded < n_taken + kAhead) {
        loaded.wait(mutex);
      }
      // ... and not beyond.
      EXPECT_EQ(n_loaded, n_taken + kAhead);
    }
    ASSERT_TRUE(loader.next());
  }
}

TEST(DataLoaderThreads, WorkersLoadAtTheSameTime) {
  constexpr int kWorkers = 3;
  Gate gate;
  DataLoader loader(std::make_shared<Ramp>(3, [&](std::int64_t) { gate.pass(); }),
                    {.num_workers = kWorkers});
  loader.start(iota(3));
  gate.wait_for(kWorkers);
  gate.open();
  EXPECT_EQ(drain(loader).size(), 3U);
}

TEST(DataLoaderThreads, ADroppedPassIsLeftInTheMiddleOfABatch) {
  Gate gate;
  std::atomic<int> n_loaded = 0;
  const auto dataset = std::make_shared<Ramp>(1000, [&](std::int64_t) {
    // Relaxed: the loader's own lock orders the increment before the check below.
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

TEST(DataLoaderThreads, DestructionInTheMiddleOfAPassWaitsOnlyForTheSamplesInHand) {
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

TEST(DataLoaderThreads, WorkersAreNamedAndInitializedOnceEach) {
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

TEST(DataLoaderThreads, AFailedWorkerInitEndsTheLoaderForGood) {
  DataLoader loader(std::make_shared<Ramp>(10), {.num_workers = 1, .worker_init_fn = [](int) {
                                                   throw std::runtime_error("no codec");
                                                 }});
  for (int pass = 0; pass < 2; ++pass) {
    loader.start(iota(10));
    EXPECT_EQ(error_of([&] { (void)loader.next(); }).message,
              "DataLoader: worker_init_fn of worker 0: no codec");
  }
}

TEST(DataLoaderThreads, NextGivesUpAfterItsTimeout) {
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

}  // namespace
}  // namespace unisono
