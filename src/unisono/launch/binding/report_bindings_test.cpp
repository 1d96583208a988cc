#include "unisono/launch/binding/report_bindings.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/cores.h"
#include "unisono/launch/rank_ranges.h"

namespace unisono::launch {
namespace {

TEST(BindingReport, HasALineForEachRank) {
  const std::vector<int> cores = cores_of(0);
  const std::string all = rank_ranges(cores);
  const std::string text = report_bindings({.host = "alpha",
                                            .ranks = {{4, {cores[0]}}, {5, {cores}}},
                                            .threads = "OMP_NUM_THREADS=1 (set by the launcher)"});
  const std::string first = std::to_string(cores[0]);
  EXPECT_THAT(text,
              ::testing::MatchesRegex("rank 4 on alpha: core " + first +
                                      "(, NUMA node [0-9]+)?, OMP_NUM_THREADS=1 \\(set by the "
                                      "launcher\\)\nrank 5 on alpha: cores? " +
                                      all + "(, NUMA nodes? [-,0-9]+)?, OMP_NUM_THREADS=1 .*"));
}

}  // namespace
}  // namespace unisono::launch
