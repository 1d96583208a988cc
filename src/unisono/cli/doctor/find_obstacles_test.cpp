#include "unisono/cli/doctor/find_obstacles.h"

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

rendezvous::Member member(int rank, const std::string& host, std::uint16_t port) {
  return {.rank = rank,
          .world_size = 3,
          .host = host,
          .pid = 100 + rank,
          .node = host,
          .address = "127.0.0.1",
          .port = port,
          .endpoint = ""};
}

TEST(FindObstacles, WhoDoesNotAnswerIsOne) {
  const net::Address any_port =
      net::Address::parse("127.0.0.1", 0).value_or(net::Address::any(AF_INET, 0));
  Fd closed = net::listen_tcp(any_port);
  const Fd open = net::listen_tcp(any_port);
  rendezvous::Roster roster;
  roster.members = {member(0, "alpha", 0),
                    member(1, "beta", net::local_address(open.get()).port()),
                    member(2, "gamma", net::local_address(closed.get()).port())};
  closed.reset();
  const std::vector<Node> nodes{{.name = "alpha", .ranks = {0}},
                                {.name = "beta", .ranks = {1}},
                                {.name = "gamma", .ranks = {2}}};
  EXPECT_THAT(find_obstacles(roster, nodes, Deadline::after(std::chrono::seconds(5))),
              ElementsAre(Obstacle{.from = 0, .to = 2, .reason = "Connection refused"}));
}

TEST(FindObstacles, OneEitherWayKeepsRanksApart) {
  const Obstacles obstacles{{.from = 0, .to = 2, .reason = ""}};
  EXPECT_FALSE(is_open(obstacles, 0, 2));
  EXPECT_FALSE(is_open(obstacles, 2, 0));
  EXPECT_TRUE(is_open(obstacles, 1, 2));
}

TEST(ReportObstacles, EqualOnesAreOneRow) {
  rendezvous::Roster roster;
  roster.members = {member(0, "alpha", 0), member(1, "alpha", 0), member(2, "gamma", 4123)};
  const std::vector<Row> rows = report_obstacles(
      {{.from = 0, .to = 2, .reason = "No route"}, {.from = 1, .to = 2, .reason = "No route"}},
      roster);
  ASSERT_EQ(rows.size(), 1);
  EXPECT_THAT(rows[0].ranks, ElementsAre(0, 1));
  EXPECT_EQ(rows[0].finding.state, State::kProblem);
  EXPECT_THAT(rows[0].finding.text,
              HasSubstr("no way to rank 2 (pid 102 on gamma) at 127.0.0.1, port 4123: No route"));
}

TEST(Obstacles, BytesOfListsCanBeJoined) {
  const Obstacle one{.from = 0, .to = 2, .reason = "No route"};
  const Obstacle other{.from = 1, .to = 0, .reason = ""};
  EXPECT_EQ(decode_obstacles(encode({one}) + encode({other})), (Obstacles{one, other}));
  EXPECT_EQ(decode_obstacles(""), Obstacles{});
  EXPECT_FALSE(decode_obstacles("nonsense").has_value());
}

}  // namespace
}  // namespace unisono::cli::doctor
