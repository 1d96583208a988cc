#include "unisono/pipeline/schedule.h"

#include <fstream>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/known_schedules.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;
using enum ActionKind;

TEST(InputStages, AreTheNeighbours) {
  EXPECT_THAT(input_stages({kForward, 0, 0}, 3), IsEmpty());
  EXPECT_THAT(input_stages({kForward, 2, 0}, 3), ElementsAre(1));
  EXPECT_THAT(input_stages({kBackward, 2, 0}, 3), IsEmpty());
  EXPECT_THAT(input_stages({kBackwardInput, 1, 0}, 3), ElementsAre(2));
  EXPECT_THAT(input_stages({kBackwardWeight, 1, 0}, 3), IsEmpty());
}

TEST(InputStages, AreThoseOfSkipConnectionsToo) {
  const std::vector<Skip> skips{{.from = 0, .to = 2}, {.from = 0, .to = 3}, {.from = 1, .to = 3}};
  EXPECT_THAT(input_stages({kForward, 3, 0}, 4, skips), UnorderedElementsAre(2, 0, 1));
  EXPECT_THAT(input_stages({kBackward, 0, 0}, 4, skips), UnorderedElementsAre(1, 2, 3));
  EXPECT_THAT(input_stages({kBackwardInput, 1, 0}, 4, skips), UnorderedElementsAre(2, 3));
  EXPECT_THAT(input_stages({kForward, 1, 0}, 4, skips), ElementsAre(0));
}

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

// Each rank's order is valid by itself, but the ranks wait for each other.
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

TEST(ScheduleCsv, WhatIsWrittenIsReadAgain) {
  for (const KnownSchedule& known : known_schedules()) {
    const Schedule schedule = known.make({.n_ranks = 4, .n_chunks = 12, .stages_per_rank = 3});
    EXPECT_EQ(parse_csv(to_csv(schedule), "table"), schedule) << known.name;
  }
}

TEST(ScheduleCsv, WaitsAndShardedParametersAreNoComputation) {
  EXPECT_EQ(
      parse_csv("0F0,0F1, ,,0B0,0B1,0REDUCE_GRAD\r\n,1UNSHARD,1F0,1B0,1F1,1B1,1RESHARD\r\n\r\n",
                "table"),
      parse_csv("0F0,0F1,0B0,0B1\n1F0,1B0,1F1,1B1", "table"));
}

TEST(ScheduleCsv, OverlappedPairsAreTwoActions) {
  const Schedule schedule = parse_csv("0F0,(0F1;0B0)OVERLAP_F_B,0B1\n", "table");
  EXPECT_EQ(to_csv(schedule), "0F0,0F1,0B0,0B1\r\n");
}

TEST(ScheduleCsv, StagesMayBeAnywhere) {
  const Schedule schedule = parse_csv("1F0,1B0\n0F0,2F0,2B0,0B0\n", "table");
  EXPECT_THAT(schedule.rank_of_stage, ElementsAre(1, 0, 1));
}

TEST(ScheduleCsv, WhatIsWrongIsNamedWithItsPlace) {
  const auto expect_refused = [](const std::string& text, const auto&... parts) {
    EXPECT_THAT([&] { (void)parse_csv(text, "a.csv"); },
                throws_error(ErrorCode::kInvalidArgument, "a.csv: ", parts...));
  };
  expect_refused("0F0,0X0\n", "line 1 (rank 0), cell 2: \"0X0\" is not an action");
  expect_refused("0F0,0B0\n1F0,F0\n", "line 2 (rank 1), cell 2: \"F0\" is not an action");
  expect_refused("0F0,0B\n", "\"0B\" is not an action");
  expect_refused("0F0,0B0x\n", "\"0B0x\" is not an action");
  expect_refused("-1F0\n", "\"-1F0\" is not an action");
  expect_refused("0F0,0SEND_F0\n", "\"0SEND_F0\" is a transfer", "compute_only");
  expect_refused("(0F0;0Q0)OVERLAP_F_B\n", "cell 1: \"0Q0\" is not an action");
  expect_refused("0F99999999999\n", "is not an action");
  expect_refused("", "the table is empty");
  expect_refused("\n\n,,\n", "the table is empty");
  expect_refused("0F0,0B2000000000\n", "2 actions are too few for 1 stages and 2000000001 chunks");
  expect_refused("0F2000000000,2000000000B0\n", "2 actions are too few for 2000000001 stages");
  expect_refused("0F0,0B0,0F1,0B1,2F0,2B0,2F1,2B1\n",
                 "no rank has stage 1, but there is a stage 2");
  expect_refused("0F0,0B0\n\n1F0,1B0\n", "rank 1 has no stage");
  expect_refused("0F0,0B0,\n1F0,,1B0,0B0\n",
                 "line 2 (rank 1), cell 4: backward of chunk 0 in stage 0, which is on rank 0");
  expect_refused("0F0,,0F0,0B0\n", "line 1 (rank 0), cell 3: forward of chunk 0", "a second time");
  expect_refused("0B0,0F0\n1F0,1B0\n", "line 1 (rank 0), cell 1: backward", "before its forward");
}

TEST(ScheduleCsv, IsReadFromAFile) {
  const test::TemporaryFolder folder;
  const std::string path = folder.path() + "/schedule.csv";
  std::ofstream(path) << "0F0,0B0\r\n";
  EXPECT_EQ(read_csv(path), fill_drain(1, 1));
  std::ofstream(path) << "0F0,0B0,what";
  EXPECT_THAT([&] { (void)read_csv(path); },
              throws_error(ErrorCode::kInvalidArgument, path, "\"what\""));
  EXPECT_THAT([&] { (void)read_csv(folder.path() + "/none"); },
              throws_error(ErrorCode::kNotFound, "/none"));
}

}  // namespace
}  // namespace unisono::pipeline
