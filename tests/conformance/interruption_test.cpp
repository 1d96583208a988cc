#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"

#include "support/interruptions.h"
#include "support/ranks.h"

namespace unisono {
namespace {

using test::errors_of_ranks;
using test::Interruptions;
using test::is_interrupted;
using test::one_node;
using test::run_ranks;
using test::World;
using ::testing::Each;
using ::testing::HasSubstr;

const std::vector<World> kLayouts{
    one_node(3), {.nodes = {"a", "b", "c"}}, {.nodes = {"a", "a", "b"}}};

// Calls barriers from the end of `is_over` until the group ends.
void come_after(const std::atomic<bool>& is_over, ProcessGroup& group) {
  is_over.wait(false);
  while (true) {
    group.barrier();
  }
}

TEST(Group, AnInterruptedCallEndsTheGroupEverywhere) {
  const Interruptions interruptions;
  for (const World& world : kLayouts) {
    std::atomic<bool> is_over = false;
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      if (group.rank() == 1) {
        is_over.wait(false);
      }
      is_interrupted = group.rank() == 0;
      try {
        // The other ranks wait in the first barrier, which rank 0 has called.
        while (true) {
          group.barrier();
        }
      } catch (const Error& error) {
        if (group.rank() == 0) {
          EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
          is_over = true;
          is_over.notify_all();
        }
        throw;
      }
    });
    EXPECT_THAT(errors, Each(HasSubstr("somebody pressed a key")));
  }
}

TEST(Group, AnInterruptedCallBehindAnotherEndsBothAndGivesTheBuffersBack) {
  const Interruptions interruptions;
  for (const World& world : kLayouts) {
    std::atomic<bool> is_over = false;
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      if (group.rank() != 0) {
        come_after(is_over, group);
      }
      const Work before = group.barrier_async();
      auto values = std::make_unique<std::vector<float>>(100000, 1.0F);
      is_interrupted = true;
      try {
        group.all_reduce(as_buffer(std::span(*values)));
        ADD_FAILURE() << "nobody else has come";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
      }
      values.reset();
      is_over = true;
      is_over.notify_all();
      is_interrupted = false;
      EXPECT_TRUE(before.is_completed());
      before.wait();
    });
    EXPECT_THAT(errors, Each(HasSubstr("somebody pressed a key")));
  }
}

TEST(Work, AnInterruptionEndsTheWaitAndNotTheOperation) {
  const Interruptions interruptions;
  run_ranks(one_node(2), [](ProcessGroup& group) {
    std::vector<int> values(1000, 1);
    if (group.rank() == 0) {
      const Work work = group.all_reduce_async(as_buffer(std::span(values)));
      is_interrupted = true;
      EXPECT_THROW(work.wait(), Error);
      is_interrupted = false;
      int go = 1;
      group.send(as_buffer(std::span(&go, 1)), 1);
      work.wait();
    } else {
      int go = 0;
      group.recv(as_buffer(std::span(&go, 1)), 0);
      group.all_reduce(as_buffer(std::span(values)));
    }
    EXPECT_EQ(values.back(), 2);
  });
}

TEST(Group, AnInterruptedDestroyAbortsWhatIsUnderWay) {
  const Interruptions interruptions;
  for (const World& world : kLayouts) {
    std::atomic<bool> is_over = false;
    const auto errors = errors_of_ranks(world, [&](ProcessGroup& group) {
      if (group.rank() != 0) {
        come_after(is_over, group);
      }
      const Work work = group.barrier_async();
      is_interrupted = true;
      try {
        group.destroy();
        ADD_FAILURE() << "nobody else has come";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kInterrupted);
      }
      is_interrupted = false;
      is_over = true;
      is_over.notify_all();
      EXPECT_TRUE(work.is_completed());
      group.destroy();
      work.wait();
    });
    EXPECT_THAT(errors, Each(HasSubstr("somebody pressed a key")));
  }
}

}  // namespace
}  // namespace unisono
