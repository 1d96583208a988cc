#include "unisono/rendezvous/roster/roster_codec.h"

#include <unistd.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/net/hello.h"
#include "unisono/rendezvous/roster/node_id.h"

namespace unisono::rendezvous {
namespace {

Entry sample(int rank) {
  return {.version = net::kProtocolVersion,
          .release = "1.2.3",
          .nonce = 0x123456789ABCDEF0,
          .member = {.rank = rank,
                     .world_size = 4,
                     .host = "node-a",
                     .pid = 4123,
                     .node = "left",
                     .address = "10.0.0.2",
                     .port = 65535,
                     .endpoint = "unisono-1",
                     .backend = {.obstacle = "no GPU", .falls_back = false}}};
}

TEST(RosterCodec, EntriesThatAreAppendedComeBack) {
  const auto entries = decode_entries(encode_entry(sample(0)) + encode_entry(sample(3)));
  ASSERT_TRUE(entries.has_value());
  ASSERT_EQ(entries->size(), 2U);
  const Entry& last = entries->back();
  EXPECT_EQ(last.version, net::kProtocolVersion);
  EXPECT_EQ(last.release, "1.2.3");
  EXPECT_EQ(last.nonce, 0x123456789ABCDEF0);
  EXPECT_EQ(last.member.rank, 3);
  EXPECT_EQ(last.member.world_size, 4);
  EXPECT_EQ(last.member.host, "node-a");
  EXPECT_EQ(last.member.pid, 4123);
  EXPECT_EQ(last.member.node, "left");
  EXPECT_EQ(last.member.address, "10.0.0.2");
  EXPECT_EQ(last.member.port, 65535);
  EXPECT_EQ(last.member.endpoint, "unisono-1");
  EXPECT_EQ(last.member.backend.obstacle, "no GPU");
  EXPECT_FALSE(last.member.backend.falls_back);
  EXPECT_TRUE(decode_entries("")->empty());
}

TEST(RosterCodec, ALongObstacleIsCutBetweenCharacters) {
  Entry entry = sample(0);
  entry.member.backend.obstacle = "x";
  for (int n = 0; n < 3000; ++n) {
    entry.member.backend.obstacle += "\u00e9";
  }
  const auto entries = decode_entries(encode_entry(entry));
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(entries->front().member.backend.obstacle, entry.member.backend.obstacle.substr(0, 511));
}

TEST(RosterCodec, EveryTruncationIsRefused) {
  const std::string text = encode_entry(sample(0));
  for (std::size_t size = 1; size < text.size(); ++size) {
    EXPECT_FALSE(decode_entries(text.substr(0, size)).has_value()) << size;
    std::string cut = text.substr(0, size);
    if (size > 8) {
      // The length says that the entry is whole.
      cut[0] = static_cast<char>(size - 8);
      EXPECT_FALSE(decode_entries(cut).has_value()) << size;
    }
  }
}

TEST(RosterCodec, BytesLeftOverInAnEntryAreRefused) {
  std::string text = encode_entry(sample(0)) + "?";
  text[0] = static_cast<char>(text.size() - 8);
  EXPECT_FALSE(decode_entries(text).has_value());
}

TEST(RosterCodec, AFallbackThatIsNeitherYesNorNoIsRefused) {
  std::string text = encode_entry(sample(0));
  text.back() = 2;
  EXPECT_FALSE(decode_entries(text).has_value());
}

TEST(RosterCodec, AnotherVersionGivesWhatItsMessagesNeed) {
  Entry other = sample(2);
  other.version = net::kProtocolVersion + 1;
  std::string text = encode_entry(other) + "more that it says";
  text[0] = static_cast<char>(text.size() - 8);
  const auto entries = decode_entries(text);
  ASSERT_TRUE(entries.has_value());
  EXPECT_EQ(entries->front().version, net::kProtocolVersion + 1);
  EXPECT_EQ(entries->front().release, "1.2.3");
  EXPECT_EQ(entries->front().member.rank, 2);
  EXPECT_EQ(entries->front().member.host, "node-a");
  EXPECT_EQ(entries->front().member.address, "");
}

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
