// Between nodes a rank may return from an operation over which others disagree: where it only
// sends, or has no part in what went wrong. It hears of it all the same, with both calls.
#include <cstddef>
#include <functional>
#include <latch>
#include <ostream>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono {
namespace {

using test::World;
using ::testing::AllOf;
using ::testing::HasSubstr;

// On nodes of their own. Rank 2 says 5 elements where the others say 4.
const World kWorld{.nodes = {"a", "b", "c"}};

constexpr int kOdd = 2;

struct Operation {
  std::string name;
  std::function<void(ProcessGroup& group, std::size_t count)> call;
  int fails;  // The rank that hears of it at once; rank 1 does not.

  friend void PrintTo(const Operation& which, std::ostream* out) { *out << which.name; }
};

const std::vector<Operation> kOperations{
    {.name = "reduce",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count);
           const Buffer buffer = as_buffer(std::span(data));
           group.reduce(buffer, buffer);
         },
     .fails = 0},
    {.name = "gather",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(count);
           std::vector<float> out(3 * count);
           group.gather(as_buffer(std::span(in)),
                        group.rank() == 0 ? as_buffer(std::span(out)) : Buffer());
         },
     .fails = 0},
    {.name = "scatter",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> in(3 * count);
           std::vector<float> out(count);
           group.scatter(group.rank() == 0 ? as_buffer(std::span(in)) : Buffer(),
                         as_buffer(std::span(out)));
         },
     .fails = 2},
    {.name = "broadcast",
     .call =
         [](ProcessGroup& group, std::size_t count) {
           std::vector<float> data(count);
           group.broadcast(as_buffer(std::span(data)));
         },
     .fails = 2},
};

class LateMismatch : public ::testing::TestWithParam<Operation> {
 protected:
  // Ranks 0 and 1 call `next` once one has failed. What rank 1 throws.
  static std::string error_of_next_call(const std::function<void(ProcessGroup& group)>& next) {
    const Operation& operation = GetParam();
    std::latch is_rank_1_done(1);
    std::latch has_failed(1);
    const auto errors = test::errors_of_ranks(kWorld, [&](ProcessGroup& group) {
      group.barrier();
      const std::size_t count = group.rank() == kOdd ? 5 : 4;
      if (group.rank() == kOdd) {
        is_rank_1_done.wait();
      }
      try {
        operation.call(group, count);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kMismatch);
        if (group.rank() == operation.fails) {
          has_failed.count_down();
        } else if (group.rank() == 1) {
          is_rank_1_done.count_down();
        }
        throw;
      }
      EXPECT_NE(group.rank(), operation.fails);
      if (group.rank() == 1) {
        is_rank_1_done.count_down();
      }
      has_failed.wait();
      next(group);
    });
    return errors[1];
  }

  static ::testing::Matcher<std::string> names_both_calls() {
    const std::string name = GetParam().name;
    return AllOf(HasSubstr("ranks called " + name + " with different sizes: "),
                 HasSubstr("called " + name + " #2 (f32[4]"),
                 HasSubstr("called " + name + " #2 (f32[5]"),
                 HasSubstr("rank 2 (pid"));
  }
};

TEST_P(LateMismatch, TheNextBarrierNamesBothCalls) {
  EXPECT_THAT(error_of_next_call([](ProcessGroup& group) { group.barrier(); }), names_both_calls());
}

TEST_P(LateMismatch, SoDoesTheSameOperationOnceMore) {
  EXPECT_THAT(error_of_next_call([](ProcessGroup& group) { GetParam().call(group, 4); }),
              names_both_calls());
}

TEST_P(LateMismatch, ARankThatEndsInsteadSaysWhyOthersFailed) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(error_of_next_call([](ProcessGroup& group) { group.destroy(); }), "");
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, names_both_calls());
  const std::string says = "[rank 1/3] leaves a group that has failed";
  EXPECT_NE(log.find(says), std::string::npos) << log;
  EXPECT_EQ(log.find(says), log.rfind(says)) << log;
}

INSTANTIATE_TEST_SUITE_P(Operations,
                         LateMismatch,
                         ::testing::ValuesIn(kOperations),
                         ::testing::PrintToStringParamName());

// Rank 2 has sent what it gives to another root, which waits for nobody, and calls another group.
TEST(LateMismatch, IsFoundThoughWhoIsWrongHasGoneOnInAnotherGroup) {
  const World world{.nodes = {"a", "b", "c"}, .environment = {{"UNISONO_STALL_SECONDS", "0.3"}}};
  const auto errors = test::errors_of_ranks(world, [](ProcessGroup& group) {
    const auto all = group.new_group(std::vector{0, 1, 2});
    float value = 0;
    const Buffer buffer = as_buffer(std::span(&value, 1));
    all->reduce(buffer, buffer, {.root = group.rank() == 2 ? 1 : 0});
    group.barrier();
  });
  EXPECT_THAT(errors[0],
              AllOf(HasSubstr("ranks called reduce with different roots: "),
                    HasSubstr("called reduce #1 (f32[1], sum, root 0)"),
                    HasSubstr("called reduce #1 (f32[1], sum, root 1)"),
                    HasSubstr("rank 2 (pid")));
}

}  // namespace
}  // namespace unisono
