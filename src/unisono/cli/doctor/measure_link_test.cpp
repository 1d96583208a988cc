#include "unisono/cli/doctor/measure_link.h"

#include <chrono>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"
#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::cli::doctor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

Link measure(const std::vector<std::string>& nodes, std::chrono::nanoseconds ahead) {
  Link link;
  test::run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
    const auto clock = [&] {
      return read_wall_clock() + (group.rank() == 1 ? ahead : std::chrono::nanoseconds(0));
    };
    const Link measured = measure_link(group, 1 - group.rank(), clock);
    if (group.rank() == 0) {
      link = measured;
    }
  });
  return link;
}

TEST(MeasureLink, HasLatencyAndBandwidthBothWays) {
  const Link link = measure({"a", "b"}, {});
  EXPECT_EQ(link.from, 0);
  EXPECT_EQ(link.to, 1);
  EXPECT_GT(link.latency, 0);
  EXPECT_LT(link.latency, 1);
  // Slower than any network, even in a debugger; faster than any memory.
  for (const double bandwidth : {link.bandwidth, link.bandwidth_back}) {
    EXPECT_GT(bandwidth, 1e5);
    EXPECT_LT(bandwidth, 1e12);
  }
}

TEST(MeasureLink, FindsTheDifferenceOfClocksWithinItsUncertainty) {
  for (const auto ahead :
       {std::chrono::seconds(0), std::chrono::seconds(5), std::chrono::seconds(-7)}) {
    const Link link = measure({"a", "a"}, ahead);
    EXPECT_GT(link.clock_uncertainty, 0);
    // A millisecond for a step of the machine's own clock meanwhile.
    EXPECT_NEAR(
        link.clock_difference, static_cast<double>(ahead.count()), link.clock_uncertainty + 1e-3);
  }
}

TEST(PairRounds, EachMeetsEachOtherOnceAndNobodyTwoAtATime) {
  for (int n = 0; n < 10; ++n) {
    std::set<std::pair<int, int>> all;
    for (const auto& round : pair_rounds(n)) {
      std::set<int> busy;
      for (const auto& [a, b] : round) {
        EXPECT_LT(a, b);
        EXPECT_LT(b, n);
        EXPECT_TRUE(busy.insert(a).second);
        EXPECT_TRUE(busy.insert(b).second);
        EXPECT_TRUE(all.insert({a, b}).second);
      }
    }
    EXPECT_EQ(all.size(), static_cast<std::size_t>(n * (n - 1) / 2)) << n;
  }
}

std::vector<Node> nodes() {
  return {{.name = "alpha", .ranks = {0, 3}},
          {.name = "beta", .ranks = {1}},
          {.name = "gamma", .ranks = {2}}};
}

Link link(int from, int to, double bandwidth) {
  return {.from = from, .to = to, .bandwidth = bandwidth, .bandwidth_back = bandwidth};
}

TEST(JudgeLinks, EqualLinksAreFine) {
  EXPECT_THAT(
      judge_links(nodes(), {link(0, 3, 9e9), link(0, 1, 1e9), link(0, 2, 1.1e9), link(1, 2, 1e9)}),
      IsEmpty());
}

TEST(JudgeLinks, ALinkOfLessThanHalfTheMedianIsNamed) {
  std::vector<Link> links{link(0, 1, 1e9), link(0, 2, 1.1e9), link(1, 2, 1e9)};
  links[2].bandwidth_back = 1e8;
  const Findings findings = judge_links(nodes(), links);
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, State::kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("beta - gamma: 0.1 GB/s, and 1 GB/s is usual"));
}

TEST(JudgeLinks, AWrongClockIsOneFinding) {
  std::vector<Link> links{link(0, 1, 1e9), link(0, 2, 1e9), link(1, 2, 1e9)};
  links[1].clock_difference = -3;
  links[2].clock_difference = -3;
  const Findings findings = judge_links(nodes(), links);
  ASSERT_EQ(findings.size(), 1);
  EXPECT_THAT(findings[0].text, HasSubstr("gamma's clock is 3.000 s behind alpha's"));
  links[1].clock_uncertainty = 2.5;
  EXPECT_THAT(judge_links(nodes(), links), IsEmpty());
}

}  // namespace
}  // namespace unisono::cli::doctor
