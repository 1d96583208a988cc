#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/ranks.h"
#include "tested_backend.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::AllOf;
using ::testing::Each;
using ::testing::HasSubstr;

const std::vector<World> kLayouts{
    one_node(3), {.nodes = {"a", "b", "c"}}, {.nodes = {"a", "a", "b"}}};

TEST(Barrier, NobodyLeavesBeforeTheLastHasCome) {
  for (const World& world : kLayouts) {
    std::atomic<int> n_arrived = 0;
    run_ranks(world, [&](ProcessGroup& group) {
      for (int round = 1; round <= 20; ++round) {
        ++n_arrived;
        group.barrier();
        EXPECT_GE(n_arrived.load(), 3 * round);
        group.barrier();
      }
    });
  }
}

TEST(Group, ATimeoutNamesTheAbsentRank) {
  for (World world : kLayouts) {
    std::promise<void> over;
    const std::shared_future<void> is_over = over.get_future().share();
    std::atomic<int> n_failed = 0;
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 1) {
        is_over.wait();
        return;
      }
      try {
        // Rank 2 may wait for rank 0 alone, which can report that rank 1 is missing.
        group.barrier({.timeout = group.rank() == 0 ? std::chrono::milliseconds(300)
                                                    : std::chrono::seconds(30)});
      } catch (const Error& error) {
        if (++n_failed == 2) {
          over.set_value();
        }
        throw;
      }
    });
    EXPECT_THAT(errors[0], HasSubstr("rank 1 (pid"));
    EXPECT_THAT(errors[2], HasSubstr("rank 1 (pid"));
  }
}

// No other rank has an error to report. Neither the rank that times out nor the ranks that receive
// its error wait for such a report.
TEST(Group, OneRanksTimeoutEndsTheCallSoonOnAllThatWait) {
  // Ends before any rank analyzes the wait.
  constexpr std::chrono::milliseconds kTimeout(150);
  for (const World& world : kLayouts) {
    std::promise<void> over;
    const std::shared_future<void> is_over = over.get_future().share();
    std::atomic<int> n_failed = 0;
    std::atomic<std::chrono::milliseconds> longest{};
    (void)errors_of_ranks(world, [&](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 1) {
        is_over.wait();
        return;
      }
      const auto begin = std::chrono::steady_clock::now();
      try {
        group.barrier({.timeout = group.rank() == 0 ? kTimeout : std::chrono::seconds(30)});
      } catch (const TimedOut& error) {
        EXPECT_EQ(error.code(), ErrorCode::kTimeout);
        EXPECT_TRUE(group.rank() != 0 || !error.late_ranks().empty()) << error.what();
        const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(
            std::chrono::steady_clock::now() - begin);
        longest = std::max(longest.load(), time);
        if (++n_failed == 2) {
          over.set_value();
        }
        throw;
      }
    });
    EXPECT_LT(longest.load(), std::chrono::seconds(10)) << "who waits for the same hears of it";
  }
}

TEST(Group, AMismatchNamesBothRanksAndBothCallsEverywhere) {
  for (const World& world : kLayouts) {
    const auto errors = errors_of_ranks(world, [](ProcessGroup& group) {
      std::vector<float> values(group.rank() == 2 ? 8 : 4);
      group.barrier();
      group.all_reduce(as_buffer(std::span(values)));
    });
    EXPECT_THAT(errors,
                Each(AllOf(HasSubstr("ranks called all_reduce with different sizes: "),
                           HasSubstr("all_reduce #2 (f32[4], sum)"),
                           HasSubstr("all_reduce #2 (f32[8], sum)"),
                           HasSubstr("rank 2"))));
  }
}

TEST(Group, DifferentAlgorithmsAreAMismatchThatSaysSo) {
  if (!test::capabilities().takes_algorithm) {
    GTEST_SKIP() << "backend " << test::tested_backend() << " has no choice of algorithms";
  }
  const auto errors = errors_of_ranks(one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(4);
    group.all_reduce(as_buffer(std::span(values)),
                     {.algorithm = group.rank() == 0 ? Algorithm::kOneShot : Algorithm::kTwoShot});
  });
  EXPECT_THAT(errors, Each(AllOf(HasSubstr("sum, one_shot)"), HasSubstr("sum, two_shot)"))));
}

TEST(Group, DifferentOperationsAreAMismatch) {
  for (const World& world : kLayouts) {
    const auto errors = errors_of_ranks(world, [](ProcessGroup& group) {
      std::vector<float> values(100000);
      const Buffer buffer = as_buffer(std::span(values));
      if (group.rank() == 0) {
        group.broadcast(buffer, {.root = 0});
      } else {
        group.all_reduce(buffer);
      }
    });
    EXPECT_THAT(errors, Each(HasSubstr("different operations")));
  }
}

TEST(Group, ARankThatLeftIsAnErrorOnlyForWhoNeedsIt) {
  for (const World& world : kLayouts) {
    const auto errors = errors_of_ranks(world, [](ProcessGroup& group) {
      group.barrier();
      if (group.rank() == 1) {
        return;
      }
      float value = 0;
      group.all_reduce(as_buffer(std::span(&value, 1)));
    });
    EXPECT_EQ(errors[1], "");
    EXPECT_THAT(errors[0], HasSubstr("left the group"));
    EXPECT_THAT(errors[2], HasSubstr("left the group"));
  }
}

TEST(Group, AfterAnErrorEveryCallRepeatsTheCause) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(group.rank() == 0 ? 3 : 4);
    const Buffer buffer = as_buffer(std::span(values));
    EXPECT_THROW(group.all_reduce(buffer), Error);
    for (int attempt = 0; attempt < 2; ++attempt) {
      try {
        (void)group.all_reduce_async(buffer);
        ADD_FAILURE() << "a closed group accepted an operation";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kClosed);
        EXPECT_THAT(error.what(), HasSubstr("ranks called all_reduce with different sizes: "));
      }
    }
  });
}

TEST(Group, OperationsBehindAFailedOneFailWithItsError) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::vector<float> values(group.rank() == 0 ? 3 : 4);
    float value = 0;
    const Work bad = group.all_reduce_async(as_buffer(std::span(values)));
    Work behind;
    try {
      behind = group.all_reduce_async(as_buffer(std::span(&value, 1)));
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kClosed);
      return;
    }
    EXPECT_THROW(behind.wait(), Error);
    EXPECT_THROW(bad.wait(), Error);
    EXPECT_NE(bad.exception(), nullptr);
  });
}

TEST(Group, DestroyTwiceIsFineAndLaterCallsSaySo) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    group.barrier();
    group.destroy();
    group.destroy();
    try {
      group.barrier();
      ADD_FAILURE() << "a destroyed group accepted an operation";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kClosed);
    }
  });
}

TEST(Group, AnAbortEndsTheWaitsOfAllRanks) {
  for (const World& world : kLayouts) {
    std::promise<void> over;
    const std::shared_future<void> is_over = over.get_future().share();
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      if (group.rank() == 1) {
        is_over.wait();  // Rank 1 never calls the barrier in which the others wait.
      } else if (group.rank() == 0) {
        const Work work = group.barrier_async();
        group.abort("somebody gave up");
        group.abort("again");
        work.wait();
      } else {
        try {
          group.barrier();
        } catch (const Error&) {
          over.set_value();
          throw;
        }
      }
    });
    EXPECT_THAT(errors[0], HasSubstr("somebody gave up"));
    EXPECT_THAT(errors[2], HasSubstr("somebody gave up"));
  }
}

TEST(Work, TryWaitChangesNothingWhenTimeIsUp) {
  std::promise<void> go;
  const std::shared_future<void> may_go = go.get_future().share();
  run_ranks(one_node(2), [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      may_go.wait();
    }
    float value = 1;
    const Work work = group.all_reduce_async(as_buffer(std::span(&value, 1)));
    if (group.rank() == 0) {
      EXPECT_FALSE(work.try_wait(std::chrono::milliseconds(20)));
      EXPECT_FALSE(work.is_completed());
      EXPECT_EQ(work.exception(), nullptr);
      go.set_value();
    }
    EXPECT_TRUE(work.try_wait(std::chrono::seconds(50)));
    EXPECT_EQ(value, 2);
  });
}

TEST(Work, CallbacksRunOnceBeforeAndAfterTheEnd) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::promise<void> called;
    std::atomic<int> n_calls = 0;
    const Work work = group.barrier_async();
    work.on_completion([&](const std::exception_ptr& error) {
      EXPECT_EQ(error, nullptr);
      ++n_calls;
      called.set_value();
    });
    work.wait();
    ASSERT_EQ(called.get_future().wait_for(std::chrono::seconds(50)), std::future_status::ready);
    work.on_completion([&](const std::exception_ptr&) { ++n_calls; });
    EXPECT_EQ(n_calls.load(), 2);
  });
}

TEST(Work, ADefaultOneIsComplete) {
  const Work work;
  EXPECT_TRUE(work.is_completed());
  work.wait();
  EXPECT_EQ(work.source_rank(), -1);
}

TEST(Group, MemoryIsKnownToBeSymmetric) {
  run_ranks(one_node(2), [](ProcessGroup& group) {
    const Buffer whole = group.allocate(1000, DType::kFloat32);
    const Buffer part{.data = static_cast<float*>(whole.data) + 900, .count = 100};
    std::vector<float> apart(1000);
    const std::array ranks{0, 1};
    const auto other = group.new_group(ranks);
    for (const ProcessGroup* const one : {&group, other.get()}) {
      EXPECT_TRUE(one->is_symmetric(whole));
      EXPECT_TRUE(one->is_symmetric(part));
      EXPECT_FALSE(one->is_symmetric(as_buffer(std::span(apart))));
    }
  });
}

TEST(Group, MemoryThatDoesNotFitIsRefusedWithTheSetting) {
  run_ranks(one_node(1), [](ProcessGroup& group) {
    try {
      (void)group.allocate(std::int64_t{1} << 40, DType::kFloat32);
      ADD_FAILURE() << "four terabytes were found in one gigabyte";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("UNISONO_ARENA_BYTES"));
    }
  });
}

TEST(Group, ANegativeCountIsRefused) {
  run_ranks(one_node(1), [](ProcessGroup& group) {
    EXPECT_THAT([&] { (void)group.allocate(-1, DType::kFloat32); },
                ::testing::ThrowsMessage<Error>(HasSubstr("a count of -1 elements is negative")));
  });
}

}  // namespace
}  // namespace unisono
