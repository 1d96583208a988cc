#include "unisono/pipeline/csv.h"

#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/pipeline/generators.h"
#include "unisono/pipeline/known_schedules.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::pipeline {
namespace {

using test::throws_error;
using ::testing::ElementsAre;

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
  expect_refused("0F0,0X0\n", "line 1 (rank 0), cell 2: \"0X0\" is no action");
  expect_refused("0F0,0B0\n1F0,F0\n", "line 2 (rank 1), cell 2: \"F0\" is no action");
  expect_refused("0F0,0B\n", "\"0B\" is no action");
  expect_refused("0F0,0B0x\n", "\"0B0x\" is no action");
  expect_refused("-1F0\n", "\"-1F0\" is no action");
  expect_refused("0F0,0SEND_F0\n", "\"0SEND_F0\" is a transfer", "compute_only");
  expect_refused("(0F0;0Q0)OVERLAP_F_B\n", "cell 1: \"0Q0\" is no action");
  expect_refused("0F99999999999\n", "is no action");
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
