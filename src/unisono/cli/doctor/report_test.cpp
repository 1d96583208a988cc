#include "unisono/cli/doctor/report.h"

#include <sys/socket.h>

#include <cmath>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"
#include "unisono/net/socket.h"

#include "support/ranks.h"

namespace unisono::cli::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;
using transport::Member;
using transport::RankTable;

Finding held(const std::string& text) {
  return problem(text, "end it", "port")[0];
}

Finding kernel(const std::string& text) {
  return {.state = kInfo, .text = text, .topic = "kernel"};
}

std::vector<Node> two_nodes() {
  return {{.name = "alpha", .ranks = {0, 1}}, {.name = "beta", .ranks = {2, 3}}};
}

Report report_of(const Finding& finding) {
  return {.nodes = {{.name = "alpha", .ranks = {0}}},
          .rows = {{.finding = finding, .ranks = {0}}},
          .links = {}};
}

Member member(int rank, const std::string& host, std::uint16_t port = 0) {
  return {.job_rank = rank,
          .host = host,
          .pid = 100 + rank,
          .node = host,
          .address = net::Address::loopback(port),
          .endpoint = ""};
}

MeasuredLink link(int from, int to, double bandwidth) {
  return {.from = from, .to = to, .bandwidth = bandwidth, .bandwidth_back = bandwidth};
}

MeasuredLink measure(const std::vector<std::string>& nodes, std::chrono::nanoseconds ahead) {
  MeasuredLink link;
  test::run_ranks({.nodes = nodes}, [&](ProcessGroup& group) {
    const auto clock = [&] {
      return read_wall_clock() + (group.rank() == 1 ? ahead : std::chrono::nanoseconds(0));
    };
    const MeasuredLink measured = measure_link(group, 1 - group.rank(), clock);
    if (group.rank() == 0) {
      link = measured;
    }
  });
  return link;
}

TEST(RunChecks, EachTopicIsOfTheProcessOrOfItsNode) {
  const LocalReport report = run_checks(read_machine(test::fake_environment({{"RANK", "0"}})));
  std::set<std::string> of_process;
  std::set<std::string> of_node;
  for (const Finding& finding : report.of_process) {
    of_process.insert(finding.topic);
  }
  for (const Finding& finding : report.of_node) {
    of_node.insert(finding.topic);
  }
  EXPECT_THAT(of_process,
              ::testing::IsSupersetOf({"launcher", "secret", "shared memory", "cores"}));
  EXPECT_THAT(of_node, ::testing::IsSupersetOf({"host", "data", "interface", "kernel", "clock"}));
  EXPECT_EQ(report.of_process.front().topic, "launcher");
  EXPECT_EQ(report.of_process.back().topic, "variable");
  EXPECT_EQ(report.of_node.front().topic, "host");
  EXPECT_EQ(report.of_node.back().topic, "clock");
}

TEST(Merge, EqualFindingsAreOneRow) {
  const std::vector<Row> rows = merge(two_nodes(),
                                      {{.of_process = {kernel("a"), held("p")}, .of_node = {}},
                                       {.of_process = {kernel("a")}, .of_node = {}},
                                       {.of_process = {kernel("b")}, .of_node = {}},
                                       {.of_process = {kernel("a"), held("p")}, .of_node = {}}});
  ASSERT_EQ(rows.size(), 3);
  EXPECT_EQ(rows[0].finding, held("p"));
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 3));
  EXPECT_THAT(rows[1].ranks, ElementsAre(0, 1, 3));
}

TEST(Merge, ANodesFindingsAreItsFirstRanks) {
  const auto local = [](const Findings& of_node) { return LocalReport{{}, of_node}; };
  const std::vector<Row> rows = merge(
      two_nodes(),
      {local({kernel("8 GiB")}), local({kernel("7 GiB")}), local({kernel("8 GiB")}), local({})});
  ASSERT_EQ(rows.size(), 1);
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 1, 2, 3));
}

TEST(Table, ProblemsComeFirstWithWhatToDo) {
  Report report = report_of(kernel("Linux"));
  report.rows.push_back({.finding = held("29500 is held"), .ranks = {0}});
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
                      .rows = {{.finding = held("p"), .ranks = {}}},
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
    report.rows = {{.finding = held("p"), .ranks = ranks}};
    const std::string table = to_table(report, false);
    const std::string row = table.substr(table.find("port  ") + 6);
    return row.substr(0, row.find('\n'));
  };
  EXPECT_EQ(place({0, 1}), "node alpha: p");
  EXPECT_EQ(place({0, 1, 2, 3}), "all nodes: p");
  EXPECT_EQ(place({1}), "rank 1: p");
  EXPECT_EQ(place({0, 1, 2}), "ranks 0-2: p");
  EXPECT_EQ(place({0, 1, 2, 5, 7, 8}), "ranks 0-2, 5, 7-8: p");
  EXPECT_EQ(place({}), "p");
  EXPECT_THAT(to_table(report, false),
              StartsWith("unisono doctor on alpha (ranks 0-1), beta (ranks 2-3): 1 problem"));
}

TEST(Table, LongLinesAreWrapped) {
  std::string text;
  for (int i = 0; i < 40; ++i) {
    text += "word" + std::to_string(i) + " ";
  }
  const std::string table = to_table(report_of(held(text)), true);
  std::size_t begin = 0;
  for (std::size_t end = 0; (end = table.find('\n', begin)) != std::string::npos; begin = end + 1) {
    EXPECT_LE(end - begin, 100);
  }
  EXPECT_THAT(table, HasSubstr("\n               word"));
}

TEST(Table, OrdersToATerminalAreNotPassedOn) {
  EXPECT_THAT(to_table(report_of(held("\x1b[2J")), true), HasSubstr("\\x1b[2J"));
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
      .rows = {{.finding = held("a \"b\" \\ \n \xC3\xA4 \xFF"), .ranks = {0, 1}}},
      .links = {{.from = 0, .to = 2, .latency = 25e-6, .bandwidth = 1e9, .bandwidth_back = 2e9}}};
  EXPECT_EQ(to_json(report),
            R"({"problems":1,"warnings":0,"nodes":[{"name":"alpha","ranks":[0,1]},)"
            R"({"name":"beta","ranks":[2,3]}],"findings":[{"state":"problem","topic":"port",)"
            R"("text":"a \"b\" \\ \n \u00e4 \ufffd",)"
            R"("advice":"end it","ranks":[0,1]}],"pairs":[{"ranks":[0,2],"latency_us":25.0,)"
            R"("bandwidth_gb_per_s":1.0,"bandwidth_back_gb_per_s":2.0,"clock_difference_us":0.0,)"
            R"("clock_uncertainty_us":0.0}]})");
}

TEST(FindNodes, RanksThatShareMemoryAreANode) {
  RankTable roster;
  roster.members = {member(0, "alpha"), member(1, "beta"), member(2, "alpha")};
  std::vector<Node> nodes = find_nodes(roster);
  ASSERT_EQ(nodes.size(), 2);
  EXPECT_EQ(nodes[0].name, "alpha");
  EXPECT_THAT(nodes[0].ranks, ElementsAre(0, 2));
  EXPECT_EQ(nodes[1].name, "beta");
  roster.members[1].host = "alpha";  // Another machine with the same name.
  roster.members[1].address = net::Address::parse("10.0.0.2", 0).value();
  nodes = find_nodes(roster);
  EXPECT_EQ(nodes.at(0).name, "alpha/127.0.0.1");
  EXPECT_EQ(nodes.at(1).name, "alpha/10.0.0.2");
}

TEST(NodeReport, DecodesToItself) {
  const NodeReport report{
      .local = {{held("29500 is held")}, {kernel("Linux")}},
      .links = {{.from = 1, .to = 2, .latency = 1e-5, .clock_difference = -0.5}},
      .blocked = {{.from = 0, .to = 2, .reason = "No route"}, {.from = 1, .to = 0, .reason = ""}}};
  const std::string bytes = encode(report);
  const auto decoded = decode(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->local.of_process, report.local.of_process);
  EXPECT_EQ(decoded->local.of_node, report.local.of_node);
  EXPECT_EQ(decoded->links, report.links);
  EXPECT_EQ(decoded->blocked, report.blocked);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(decode(bytes.substr(0, size)).has_value()) << size;
  }
  EXPECT_FALSE(decode("nonsense").has_value());
  EXPECT_FALSE(decode(bytes + "x").has_value());
  std::string wrong_state = bytes;
  wrong_state.at(4) = 4;  // The byte after the number of findings.
  EXPECT_FALSE(decode(wrong_state).has_value());
}

TEST(BlockedLinks, AreThoseWithoutAnswer) {
  const net::Address any_port =
      net::Address::parse("127.0.0.1", 0).value_or(net::Address::any(AF_INET, 0));
  Fd closed = net::listen_tcp(any_port);
  const Fd open = net::listen_tcp(any_port);
  RankTable roster;
  roster.members = {member(0, "alpha"),
                    member(1, "beta", net::local_address(open.get()).port()),
                    member(2, "gamma", net::local_address(closed.get()).port())};
  closed.reset();
  const BlockedLinks blocked =
      find_blocked_links(roster, find_nodes(roster), Deadline::after(std::chrono::seconds(5)));
  EXPECT_THAT(blocked,
              ElementsAre(BlockedLink{.from = 0, .to = 2, .reason = "Connection refused"}));
  EXPECT_FALSE(is_open(blocked, 0, 2));
  EXPECT_FALSE(is_open(blocked, 2, 0)) << "either way keeps the ranks apart";
  EXPECT_TRUE(is_open(blocked, 1, 2));
}

TEST(BlockedLinks, OfEqualTextAreOneRow) {
  RankTable roster;
  roster.members = {member(0, "alpha"), member(1, "alpha"), member(2, "gamma", 4123)};
  const std::vector<Row> rows = report_blocked_links(
      {{.from = 0, .to = 2, .reason = "No route"}, {.from = 1, .to = 2, .reason = "No route"}},
      roster);
  ASSERT_EQ(rows.size(), 1);
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(rows[0].finding.state, kProblem);
  EXPECT_THAT(
      rows[0].finding.text,
      HasSubstr("can't connect to rank 2 (pid 102 on gamma) at 127.0.0.1, port 4123: No route"));
}

TEST(MeasureLink, HasLatencyAndBandwidthBothWays) {
  const MeasuredLink link = measure({"a", "b"}, {});
  EXPECT_EQ(link.from, 0);
  EXPECT_EQ(link.to, 1);
  EXPECT_GT(link.latency, 0);
  EXPECT_LT(link.latency, 1);
  // The lower limit is below any network, even in a debugger; the upper limit is above any memory.
  for (const double bandwidth : {link.bandwidth, link.bandwidth_back}) {
    EXPECT_GT(bandwidth, 1e5);
    EXPECT_LT(bandwidth, 1e12);
  }
}

TEST(MeasureLink, FindsTheDifferenceOfClocksWithinItsUncertainty) {
  for (const auto ahead :
       {std::chrono::seconds(0), std::chrono::seconds(5), std::chrono::seconds(-7)}) {
    const MeasuredLink link = measure({"a", "a"}, ahead);
    EXPECT_GT(link.clock_uncertainty, 0);
    // The allowance of one millisecond covers a step of the machine's own clock.
    EXPECT_NEAR(
        link.clock_difference, static_cast<double>(ahead.count()), link.clock_uncertainty + 1e-3);
  }
}

TEST(PairRounds, EachMeetsEachOtherOnceAndOneAtATime) {
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

TEST(RateLinks, SlowLinksAndWrongClocksAreNamed) {
  const std::vector<Node> nodes{{.name = "alpha", .ranks = {0, 3}},
                                {.name = "beta", .ranks = {1}},
                                {.name = "gamma", .ranks = {2}}};
  const std::vector<MeasuredLink> good{
      link(0, 3, 9e9), link(0, 1, 1e9), link(0, 2, 1.1e9), link(1, 2, 1e9)};
  EXPECT_THAT(rate_links(nodes, good), IsEmpty());
  std::vector<MeasuredLink> slow = good;
  slow[3].bandwidth_back = 1e8;
  Findings findings = rate_links(nodes, slow);
  ASSERT_EQ(findings.size(), 1);
  EXPECT_EQ(findings[0].state, kWarning);
  EXPECT_THAT(findings[0].text, HasSubstr("beta - gamma: 0.1 GB/s, and 1 GB/s is usual"));
  std::vector<MeasuredLink> late = good;
  late[2].clock_difference = -3;
  late[3].clock_difference = -3;
  findings = rate_links(nodes, late);
  ASSERT_EQ(findings.size(), 1);
  EXPECT_THAT(findings[0].text, HasSubstr("gamma's clock is 3.000 s behind alpha's"));
  late[2].clock_uncertainty = 2.5;
  EXPECT_THAT(rate_links(nodes, late), IsEmpty());
}

}  // namespace
}  // namespace unisono::cli::doctor
