#include "unisono/cli/doctor/report.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/finding.h"

namespace unisono::cli::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

Finding problem(const std::string& text) {
  return {.state = State::kProblem, .topic = "port", .text = text, .advice = "end it"};
}

Finding info(const std::string& text) {
  return {.state = State::kInfo, .topic = "kernel", .text = text};
}

std::vector<Node> two_nodes() {
  return {{.name = "alpha", .ranks = {0, 1}}, {.name = "beta", .ranks = {2, 3}}};
}

TEST(Merge, EqualFindingsAreOneRow) {
  const std::vector<Row> rows = merge(two_nodes(),
                                      {{.of_process = {info("a"), problem("p")}, .of_node = {}},
                                       {.of_process = {info("a")}, .of_node = {}},
                                       {.of_process = {info("b")}, .of_node = {}},
                                       {.of_process = {info("a"), problem("p")}, .of_node = {}}});
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0].finding, problem("p"));
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 3));
  EXPECT_THAT(rows[1].ranks, ElementsAre(0, 1, 3));
}

TEST(Merge, ANodesFindingsAreItsFirstRanks) {
  const std::vector<Row> rows = merge(two_nodes(),
                                      {{.of_process = {}, .of_node = {info("8 GiB")}},
                                       {.of_process = {}, .of_node = {info("7 GiB")}},
                                       {.of_process = {}, .of_node = {info("8 GiB")}},
                                       {.of_process = {}, .of_node = {}}});
  ASSERT_EQ(rows.size(), 1);
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 1, 2, 3));
}

TEST(DescribeRanks, RunsAreRanges) {
  EXPECT_EQ(describe_ranks({0}), "0");
  EXPECT_EQ(describe_ranks({0, 1, 2, 5, 7, 8}), "0-2, 5, 7-8");
}

TEST(Table, ProblemsComeFirstWithWhatToDo) {
  Report report{.nodes = {{.name = "alpha", .ranks = {0}}},
                .rows = {{.finding = info("Linux"), .ranks = {0}},
                         {.finding = problem("29500 is held"), .ranks = {0}}},
                .links = {}};
  sort_rows(report.rows);
  EXPECT_EQ(to_table(report, true),
            "unisono doctor on alpha: 1 problem, no warning\n"
            "\n"
            "problem  port    29500 is held\n"
            "                 -> end it\n"
            "info     kernel  Linux\n");
  EXPECT_THAT(to_table(report, false), Not(HasSubstr("Linux")));
}

TEST(Table, AProcessOfUnknownRankIsOnItsNode) {
  const Report report{.nodes = {{.name = "alpha", .ranks = {}}},
                      .rows = {{.finding = problem("p"), .ranks = {}}},
                      .links = {}};
  EXPECT_EQ(to_table(report, true),
            "unisono doctor on alpha: 1 problem, no warning\n"
            "\n"
            "problem  port  p\n"
            "               -> end it\n");
}

TEST(Table, RowsOfAJobSayWhereTheyHold) {
  Report report{.nodes = two_nodes(), .rows = {}, .links = {}};
  const auto place = [&](const std::vector<int>& ranks) {
    report.rows = {{.finding = problem("p"), .ranks = ranks}};
    const std::string table = to_table(report, false);
    const std::string row = table.substr(table.find("port  ") + 6);
    return row.substr(0, row.find('\n'));
  };
  EXPECT_EQ(place({0, 1}), "node alpha: p");
  EXPECT_EQ(place({0, 1, 2, 3}), "all nodes: p");
  EXPECT_EQ(place({1}), "rank 1: p");
  EXPECT_EQ(place({0, 1, 2}), "ranks 0-2: p");
  EXPECT_EQ(place({}), "p");
  EXPECT_THAT(to_table(report, false),
              StartsWith("unisono doctor on alpha (ranks 0-1), beta (ranks 2-3): 1 problem"));
}

TEST(Table, LongLinesAreWrapped) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "word" + std::to_string(i) + " ";
  }
  const Report report{.nodes = {{.name = "alpha", .ranks = {0}}},
                      .rows = {{.finding = problem(text), .ranks = {0}}},
                      .links = {}};
  const std::string table = to_table(report, true);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100);
  }
  EXPECT_THAT(table, HasSubstr("\n               word"));
}

TEST(Table, OrdersToATerminalAreNotPassedOn) {
  const Report report{.nodes = {{.name = "alpha", .ranks = {0}}},
                      .rows = {{.finding = problem("\x1b[2J"), .ranks = {0}}},
                      .links = {}};
  EXPECT_THAT(to_table(report, true), HasSubstr("\\x1b[2J"));
}

TEST(Table, LinksStandBelow) {
  const Report report{.nodes = two_nodes(),
                      .rows = {},
                      .links = {{.from = 0,
                                 .to = 2,
                                 .latency = 25e-6,
                                 .bandwidth = 1.2e9,
                                 .bandwidth_back = 1.1e9,
                                 .clock_difference = 0.0012,
                                 .clock_uncertainty = 0.00003},
                                {.from = 0, .to = 1}}};
  const std::string table = to_table(report, false);
  EXPECT_THAT(table,
              HasSubstr("alpha - beta        25.0       1.200       1.100              "
                        "1.200 +- 0.030\n"));
  EXPECT_THAT(table, HasSubstr("\nwithin alpha "));
}

TEST(Json, EverythingIsInIt) {
  const Report report{
      .nodes = two_nodes(),
      .rows = {{.finding = problem("a \"b\" \\ \n \xC3\xA4 \xFF"), .ranks = {0, 1}}},
      .links = {{.from = 0, .to = 2, .latency = 25e-6, .bandwidth = 1e9, .bandwidth_back = 2e9}}};
  EXPECT_EQ(to_json(report),
            R"({"problems":1,"warnings":0,"nodes":[{"name":"alpha","ranks":[0,1]},)"
            R"({"name":"beta","ranks":[2,3]}],"findings":[{"state":"problem","topic":"port",)"
            R"("text":"a \"b\" \\ \n \u00e4 \ufffd",)"
            R"("advice":"end it","ranks":[0,1]}],"pairs":[{"ranks":[0,2],"latency_us":25.0,)"
            R"("bandwidth_gb_per_s":1.0,"bandwidth_back_gb_per_s":2.0,"clock_difference_us":0.0,)"
            R"("clock_uncertainty_us":0.0}]})");
}

}  // namespace
}  // namespace unisono::cli::doctor
