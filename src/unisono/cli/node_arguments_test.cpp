#include "unisono/cli/node_arguments.h"

#include <chrono>
#include <tuple>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::cli {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using test::throws_error;
using ::testing::ElementsAre;

struct Applied {
  launch::RunOptions options;
  std::vector<std::string> ignored;
};

Applied applied(const NodeArguments& arguments) {
  Applied result;
  apply(arguments, result.options, result.ignored);
  return result;
}

TEST(NodeArguments, CountsAreNumbersOrRanges) {
  EXPECT_EQ(parse_node_count("3"), (NodeCount{3, 3}));
  EXPECT_EQ(parse_node_count("2:4"), (NodeCount{2, 4}));
  for (const char* text :
       {"", "0", "-1", "4:2", "0:2", "2:", ":2", "2:3:4", "two", "2 ", "999999"}) {
    EXPECT_EQ(parse_node_count(text), std::nullopt) << text;
  }
}

TEST(NodeArguments, OneNodeIsNoJobOfNodes) {
  const Applied one = applied({.node_rank = 0, .endpoint = "alpha:123", .settings = "timeout=3"});
  EXPECT_FALSE(one.options.nodes.has_value());
  EXPECT_EQ(one.options.master_addr, "alpha");
  EXPECT_EQ(one.options.master_port, 123);
  EXPECT_THAT(one.ignored, ElementsAre("--rdzv-conf"));
  EXPECT_EQ(applied({.is_standalone = true, .endpoint = "x:99999"}).options.master_addr, "");
}

TEST(NodeArguments, ThePlaceAndItsDefaults) {
  launch::RunOptions options;
  std::vector<std::string> ignored;
  options.master_addr = "alpha";
  apply({.n_nodes = "2", .node_rank = 1}, options, ignored);
  EXPECT_EQ(options.nodes.value().host, "alpha");
  EXPECT_EQ(options.nodes.value().port, 29500);
  EXPECT_EQ(options.nodes.value().node_rank, 1);
  const Applied endpoint = applied({.n_nodes = "2:3", .endpoint = "[::1]"});
  EXPECT_EQ(endpoint.options.nodes.value().host, "::1");
  EXPECT_EQ(endpoint.options.nodes.value().port, 29400);
  EXPECT_EQ(endpoint.options.nodes.value().node_rank, -1);
  EXPECT_EQ(endpoint.options.nodes.value().min_nodes, 2);
  EXPECT_EQ(endpoint.options.nodes.value().max_nodes, 3);
}

TEST(NodeArguments, RanksOfC10dAreGivenOut) {
  const Applied c10d = applied({.n_nodes = "2:3", .node_rank = 7, .backend = "c10d"});
  EXPECT_EQ(c10d.options.nodes.value().node_rank, -1);
}

TEST(NodeArguments, SettingsAreRead) {
  const Applied all = applied({.n_nodes = "2",
                               .settings = "join_timeout=1.5,last_call_timeout=2,"
                                           "keep_alive_interval=3,keep_alive_max_attempt=4,"
                                           "is_host=false,read_timeout=9"});
  const launch::NodesOptions nodes = all.options.nodes.value();
  EXPECT_EQ(nodes.join_timeout, milliseconds(1500));
  EXPECT_EQ(nodes.last_call, seconds(2));
  EXPECT_EQ(nodes.keep_alive_interval, seconds(3));
  EXPECT_EQ(nodes.max_keep_alives, 4);
  EXPECT_EQ(nodes.is_coordinator, false);
  EXPECT_THAT(all.ignored, ElementsAre("--rdzv-conf read_timeout"));
}

TEST(NodeArguments, QuotesAndBlanksAroundSettingsAreNoPartOfThem) {
  for (const char* text : {"'join_timeout=60,is_host=true'",
                           "\"join_timeout=60,is_host=true\"",
                           " join_timeout=60, is_host=true ",
                           "join_timeout='60',is_host=\"true\""}) {
    const Applied all = applied({.n_nodes = "2", .settings = text});
    EXPECT_EQ(all.options.nodes.value().join_timeout, seconds(60)) << text;
    EXPECT_EQ(all.options.nodes.value().is_coordinator, true) << text;
    EXPECT_THAT(all.ignored, ElementsAre()) << text;
  }
}

TEST(NodeArguments, AddressesMayBeNumericOrNames) {
  for (const auto& [endpoint, host, port] : {std::tuple("alpha", "alpha", 29400),
                                             std::tuple("alpha:123", "alpha", 123),
                                             std::tuple("::1", "::1", 29400),
                                             std::tuple("[::1]", "::1", 29400),
                                             std::tuple("[::1]:123", "::1", 123),
                                             std::tuple("10.0.0.1:123", "10.0.0.1", 123)}) {
    const Applied all = applied({.n_nodes = "2", .endpoint = endpoint});
    EXPECT_EQ(all.options.nodes.value().host, host);
    EXPECT_EQ(all.options.nodes.value().port, port);
  }
}

TEST(NodeArguments, WrongOnesAreExplained) {
  const auto refused = [](const NodeArguments& arguments, const std::string& why) {
    EXPECT_THAT([&] { (void)applied(arguments); }, throws_error(ErrorCode::kInvalidArgument, why));
  };
  refused({.n_nodes = "two"}, "--nnodes two: write a number, or MIN:MAX");
  refused({.node_rank = 1}, "--node-rank 1: with --nnodes 1 there is 0 only");
  refused({.n_nodes = "2", .node_rank = 2}, "--node-rank 2: with --nnodes 2 there are 0 to 1");
  refused({.n_nodes = "2", .node_rank = -1}, "--node-rank -1");
  refused({.n_nodes = "1:2", .node_rank = 0}, "exclude each other");
  refused({.n_nodes = "2", .is_standalone = true}, "--standalone and --nnodes 2 exclude");
  refused({.backend = "etcd"}, "--rdzv-backend etcd: there are static and c10d");
  refused({.endpoint = "a:b"}, "--rdzv-endpoint a:b: b is not a port");
  refused({.endpoint = "::1:29574"}, "--rdzv-endpoint ::1:29574 is not a valid host");
  refused({.endpoint = "http://a"}, "without http://");
  refused({.endpoint = ":29500"}, "the host is missing");
  refused({.n_nodes = "2", .settings = "join_timeout"}, "write name=value");
  for (const char* text : {"join_timeout=0",
                           "join_timeout=x",
                           "keep_alive_max_attempt=0",
                           "is_host=maybe",
                           "last_call_timeout=nan"}) {
    refused({.n_nodes = "2", .settings = text}, "this is not a valid value");
  }
}

}  // namespace
}  // namespace unisono::cli
