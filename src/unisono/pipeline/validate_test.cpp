#include "unisono/pipeline/validate.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/generators.h"

#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;
using enum ActionKind;

template <class... Parts>
void expect_refused(const Schedule& schedule, const Parts&... parts) {
  EXPECT_THAT([&] { validate(schedule, "this one"); },
              throws_error(ErrorCode::kInvalidArgument, "this one: ", parts...));
}

TEST(Validate, ShapesThatMakeNoSense) {
  expect_refused({}, "0 ranks, 0 stages and 0 chunks");
  Schedule schedule = one_f_one_b(2, 2);
  schedule.rank_of_stage[1] = 2;
  expect_refused(schedule, "stage 1 is on rank 2, but there are 2 ranks");
  schedule.rank_of_stage[1] = 0;
  expect_refused(schedule, "rank 1 has no stage");
}

TEST(Validate, ActionsThatDoNotExist) {
  Schedule schedule = one_f_one_b(2, 2);
  schedule.orders[0][1].stage = 2;
  expect_refused(schedule,
                 "rank 0, action 1: forward of chunk 1 in stage 2, but there are 2 stages");
  schedule.orders[0][1].stage = 1;
  expect_refused(schedule, "rank 0, action 1: forward of chunk 1 in stage 1, which is on rank 1");
  schedule.orders[0][1] = {kForward, 0, -1};
  expect_refused(schedule, "chunk -1 in stage 0, but there are 2 chunks");
}

TEST(Validate, ActionsThatAreMissingOrComeTwice) {
  Schedule schedule = one_f_one_b(2, 2);
  schedule.orders[1].pop_back();
  expect_refused(schedule, "rank 1: there is no backward of chunk 1 in stage 1");
  schedule.orders[1].push_back({kBackwardInput, 1, 1});
  expect_refused(schedule, "rank 1: there is no weight gradients of chunk 1 in stage 1");
  schedule.orders[1].push_back({kBackward, 1, 1});
  expect_refused(schedule, "rank 1, action 4: backward of chunk 1 in stage 1 comes a second time");
  schedule.orders[1].back() = {kForward, 1, 0};
  expect_refused(schedule, "forward of chunk 0 in stage 1 comes a second time");
}

TEST(Validate, ActionsInTheWrongOrder) {
  Schedule schedule = one_f_one_b(2, 2);
  std::swap(schedule.orders[1][0], schedule.orders[1][1]);
  expect_refused(schedule,
                 "rank 1, action 0: backward of chunk 0 in stage 1 comes before its forward");
  schedule = zero_bubble_h1(1, 1);
  std::swap(schedule.orders[0][1], schedule.orders[0][2]);
  expect_refused(schedule, "rank 0, action 1: weight gradients of chunk 0 in stage 0 come before");
}

// Each rank's order is fine by itself, and each waits for the other.
TEST(Validate, RanksThatWaitForEachOther) {
  Schedule schedule = one_f_one_b(2, 2);
  schedule.orders[0] = {{kForward, 0, 0}, {kBackward, 0, 0}, {kForward, 0, 1}, {kBackward, 0, 1}};
  schedule.orders[1] = {{kForward, 1, 0}, {kForward, 1, 1}, {kBackward, 1, 0}, {kBackward, 1, 1}};
  expect_refused(schedule,
                 "ranks wait for each other: ",
                 "rank 0, action 1: backward of chunk 0 in stage 0 waits for that in stage 1, on "
                 "rank 1; rank 1, action 1: forward of chunk 1 in stage 1 waits for that in stage "
                 "0, on rank 0");
}

TEST(Validate, PlacesHaveTheCallersNames) {
  Schedule schedule = one_f_one_b(2, 2);
  schedule.orders[1][0].chunk = 7;
  const auto name = [](int rank, int place) {
    return "row " + std::to_string(rank + 1) + ", column " + std::to_string(place + 1);
  };
  EXPECT_THAT(
      [&] { validate(schedule, "table", name); },
      throws_error(ErrorCode::kInvalidArgument, "table: row 2, column 1: forward of chunk 7"));
}

}  // namespace
}  // namespace unisono::pipeline
