#include "unisono/rendezvous/roster/node_id.h"

#include <unistd.h>

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"

namespace unisono::rendezvous {
namespace {

TEST(NodeId, IsTheSameEachTimeAndNamesKernelNamespacesAndUser) {
  const std::string id = node_id(Config{});
  EXPECT_EQ(id, node_id(Config{}));
  EXPECT_THAT(id, ::testing::MatchesRegex("[^/]+/net[1-9][0-9]*/pid[1-9][0-9]*/uid[0-9]+"));
  EXPECT_THAT(id, ::testing::EndsWith("/uid" + std::to_string(::getuid())));
}

TEST(NodeId, TheSettingReplacesIt) {
  Config config;
  config.node_id = "left";
  EXPECT_EQ(node_id(config), "left");
}

TEST(NodeId, TheHostHasAName) {
  EXPECT_NE(host_name(), "");
}

}  // namespace
}  // namespace unisono::rendezvous
