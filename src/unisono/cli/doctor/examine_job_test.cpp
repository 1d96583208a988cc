#include "unisono/cli/doctor/examine_job.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/cli/doctor/codec.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {
namespace {

using ::testing::ElementsAre;

rendezvous::Member member(int rank, const std::string& host, const std::string& node) {
  return {.rank = rank,
          .world_size = 4,
          .host = host,
          .pid = 100 + rank,
          .node = node,
          .address = "127.0.0.1",
          .port = 0,
          .endpoint = ""};
}

TEST(FindNodes, RanksThatShareMemoryAreANode) {
  rendezvous::Roster roster;
  roster.members = {member(0, "alpha", "x"), member(1, "beta", "y"), member(2, "alpha", "x")};
  const std::vector<Node> nodes = find_nodes(roster);
  ASSERT_EQ(nodes.size(), 2);
  EXPECT_EQ(nodes[0].name, "alpha");
  EXPECT_THAT(nodes[0].ranks, ElementsAre(0, 2));
  EXPECT_EQ(nodes[1].name, "beta");
}

TEST(FindNodes, HostsOfOneNameAreToldApartByAddress) {
  rendezvous::Roster roster;
  roster.members = {member(0, "vm", "x"), member(1, "vm", "y")};
  roster.members[1].address = "10.0.0.2";
  const std::vector<Node> nodes = find_nodes(roster);
  EXPECT_EQ(nodes.at(0).name, "vm/127.0.0.1");
  EXPECT_EQ(nodes.at(1).name, "vm/10.0.0.2");
}

TEST(Codec, WhatIsEncodedIsDecoded) {
  const Contribution contribution{
      .examination = {.of_process = {{.state = State::kProblem,
                                      .topic = "port",
                                      .text = "held",
                                      .advice = "end it"}},
                      .of_node = {{.state = State::kInfo, .topic = "kernel", .text = "Linux"}}},
      .links = {{.from = 1, .to = 2, .latency = 1e-5, .clock_difference = -0.5}}};
  const std::string bytes = encode(contribution);
  const auto decoded = decode(bytes);
  ASSERT_TRUE(decoded.has_value());
  EXPECT_EQ(decoded->examination.of_process, contribution.examination.of_process);
  EXPECT_EQ(decoded->examination.of_node, contribution.examination.of_node);
  EXPECT_EQ(decoded->links, contribution.links);
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    const auto part = decode(bytes.substr(0, size));
    EXPECT_TRUE(!part || part->links.empty()) << size;
  }
  EXPECT_FALSE(decode("nonsense").has_value());
}

}  // namespace
}  // namespace unisono::cli::doctor
