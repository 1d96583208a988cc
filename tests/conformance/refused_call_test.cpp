// Errors of other ranks about a rank that has rejected a call.
#include <chrono>
#include <latch>
#include <optional>
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

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

void refuse_a_call(ProcessGroup& group) {
  std::vector<float> three(3);
  std::vector<float> two(2);
  try {
    group.all_gather(as_buffer(std::span(two)), as_buffer(std::span(three)));
    ADD_FAILURE() << "accepted";
  } catch (const RefusedCall& error) {
    EXPECT_EQ(error.problem(),
              "out has 3 elements, which can't be divided equally among a world of 2")
        << error.what();
  }
}

std::string error_of_a_sum(ProcessGroup& group, std::chrono::milliseconds timeout) {
  float one = 1;
  try {
    group.all_reduce(as_buffer(std::span(&one, 1)), {.timeout = timeout});
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(RefusedCall, IsNamedByARankThatWaits) {
  std::latch has_refused(1);
  std::latch has_timed_out(1);
  test::run_ranks(test::one_node(2), [&](ProcessGroup& group) {
    group.barrier();
    if (group.rank() == 1) {
      refuse_a_call(group);
      has_refused.count_down();
      has_timed_out.wait();
      return;
    }
    has_refused.wait();
    EXPECT_THAT(error_of_a_sum(group, std::chrono::milliseconds(100)),
                HasSubstr("which has finished barrier #1 and called no collective operation of "
                          "this group since, and refused a call for wrong arguments: \"all_gather: "
                          "out has 3 elements"));
    has_timed_out.count_down();
  });
}

TEST(RefusedCall, IsForgottenWithTheNextOperation) {
  std::latch has_timed_out(1);
  test::run_ranks(test::one_node(2), [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      refuse_a_call(group);
    }
    group.barrier();
    if (group.rank() == 1) {
      has_timed_out.wait();
      return;
    }
    EXPECT_THAT(error_of_a_sum(group, std::chrono::milliseconds(100)),
                AllOf(HasSubstr("has finished barrier #1"), Not(HasSubstr("refused"))));
    has_timed_out.count_down();
  });
}

TEST(RefusedCall, IsNamedWhenItsRankHasLeft) {
  test::run_ranks(test::one_node(2), [&](ProcessGroup& group) {
    if (group.rank() == 1) {
      refuse_a_call(group);
      return;
    }
    EXPECT_THAT(error_of_a_sum(group, std::chrono::seconds(20)),
                AllOf(HasSubstr("left the group"),
                      HasSubstr("it had refused a call for wrong arguments: \"all_gather: ")));
  });
}

}  // namespace
}  // namespace unisono
