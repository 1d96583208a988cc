#include "unisono/launch/output/line_format.h"

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {
namespace {

using ::testing::MatchesRegex;

TEST(LineFormat, NamesRanks) {
  EXPECT_EQ(rank_prefix({}, 3, 1, false), "[rank 3] ");
  EXPECT_EQ(rank_prefix({.host = "alpha"}, 3, 1, false), "[alpha:3] ");
  EXPECT_EQ(rank_prefix({}, 0, 0, true), "\x1b[36m[rank 0]\x1b[0m ");
  EXPECT_EQ(format_collapsed({}, std::vector{0, 1, 2, 7}, "text", false), "[0-2,7] text\n");
  EXPECT_EQ(format_collapsed({.host = "alpha"}, std::vector{4}, "text", false), "[alpha:4] text\n");
}

TEST(LineFormat, APrefixMayBeATemplateOfTorchrun) {
  const auto prefix = [](const std::string& text) {
    return rank_prefix({.host = "alpha", .prefix_template = text, .role = "trainer"}, 13, 5, false);
  };
  EXPECT_EQ(prefix("[${role_name}${local_rank}|${rank}]: "), "[trainer5|13]: ");
  EXPECT_EQ(prefix("$role_name.$rank "), "trainer.13 ");
  EXPECT_EQ(prefix("$local_rank"), "5");
  EXPECT_EQ(prefix("$$rank $$ 5$ ${other} $other ${rank $ranks {rank}"),
            "$rank $ 5$ ${other} $other ${rank $ranks {rank}");
  EXPECT_EQ(rank_prefix({.prefix_template = "<$rank>"}, 0, 0, true), "\x1b[36m<0>\x1b[0m");
}

TEST(LineFormat, JsonHasTheTimeTheRankAndTheText) {
  const std::string line =
      format_json({.is_json = true}, std::vector{3}, Stream::kErr, "say \"\x1b[1mü\"\t\xff");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_THAT(json.at("time").get<std::string>(),
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]{8}[.][0-9]{6}Z"));
  EXPECT_EQ(json.at("rank"), 3);
  EXPECT_EQ(json.at("stream"), "stderr");
  EXPECT_EQ(json.at("text"), "say \"\x1b[1mü\"\t\uFFFD");
  EXPECT_FALSE(json.contains("host"));
  const auto several = nlohmann::json::parse(
      format_json({.is_json = true, .host = "alpha"}, std::vector{0, 1}, Stream::kOut, ""));
  EXPECT_EQ(several.at("ranks"), (std::vector{0, 1}));
  EXPECT_EQ(several.at("host"), "alpha");
}

TEST(LineFormat, MessagesAreTheLaunchers) {
  EXPECT_EQ(format_message({}, "one\ntwo"), "[unisono run] one\n[unisono run] two\n");
  EXPECT_EQ(format_message({.host = "alpha"}, "one"), "[unisono run on alpha] one\n");
  const auto json = nlohmann::json::parse(format_message({.is_json = true}, "one"));
  EXPECT_EQ(json.at("source"), "launcher");
  EXPECT_EQ(json.at("text"), "one");
}

}  // namespace
}  // namespace unisono::launch
