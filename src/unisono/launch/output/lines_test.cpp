#include "unisono/launch/output/lines.h"

#include <chrono>
#include <nlohmann/json.hpp>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::launch {
namespace {

std::vector<std::string> split(LineSplitter& splitter, std::string_view bytes) {
  std::vector<std::string> lines;
  splitter.feed(bytes, [&](const Line& line) {
    lines.push_back(std::string(line.text) + (line.is_cut ? "<cut>" : ""));
  });
  return lines;
}

using Lines = std::vector<std::string>;

TEST(LineSplitter, LinesAreTheSameHoweverTheBytesArrive) {
  const std::string text = std::string("one\n\n") + '\0' + "two\xff\nthree\r\nlast";
  const Lines expected{"one", "", std::string(1, '\0') + "two\xff", "three\r"};
  for (std::size_t step = 1; step <= text.size(); ++step) {
    LineSplitter splitter(100);
    Lines lines;
    for (std::size_t at = 0; at < text.size(); at += step) {
      for (std::string& line : split(splitter, std::string_view(text).substr(at, step))) {
        lines.push_back(std::move(line));
      }
    }
    EXPECT_EQ(lines, expected) << step;
    EXPECT_EQ(splitter.partial().text, "last");
    EXPECT_EQ(splitter.partial().offset, text.size() - 4);
  }
}

TEST(LineSplitter, OnlyALineAboveTheLimitIsCut) {
  LineSplitter splitter(4);
  EXPECT_EQ(split(splitter, "1234\n12345\n123456789\n"),
            (Lines{"1234", "1234<cut>", "5", "1234<cut>", "5678<cut>", "9"}));
  EXPECT_EQ(splitter.partial().text, "");
}

TEST(LineSplitter, OffsetsCountEveryByte) {
  LineSplitter splitter(4);
  std::vector<std::uint64_t> offsets;
  splitter.feed("ab\n123456\nx", [&](const Line& line) { offsets.push_back(line.offset); });
  EXPECT_EQ(offsets, (std::vector<std::uint64_t>{0, 3, 7}));
  EXPECT_EQ(splitter.partial().offset, 10U);
  splitter.clear();
  EXPECT_EQ(splitter.partial().offset, 11U);
}

TEST(LineSplitter, AProgressBarForgetsItsOldFrames) {
  LineSplitter splitter(8);
  EXPECT_EQ(split(splitter, "\r10%\r20%\r30%\r40%"), Lines{});
  EXPECT_EQ(splitter.partial().text.substr(splitter.partial().text.rfind('\r')), "\r40%");
  EXPECT_EQ(splitter.partial().offset + splitter.partial().text.size(), 16U);
  EXPECT_EQ(split(splitter, "\r123456789\n"), (Lines{"\r1234567<cut>", "89"}));
}

}  // namespace

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
      format_json({.is_json = true}, std::vector{3}, OutputStream::kErr, "say \"\x1b[1mü\"\t\xff");
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_THAT(json.at("time").get<std::string>(),
              MatchesRegex("20[0-9][0-9]-[0-9][0-9]-[0-9][0-9]T[0-9:]{8}[.][0-9]{6}Z"));
  EXPECT_EQ(json.at("rank"), 3);
  EXPECT_EQ(json.at("stream"), "stderr");
  EXPECT_EQ(json.at("text"), "say \"\x1b[1mü\"\t\uFFFD");
  EXPECT_FALSE(json.contains("host"));
  const auto several = nlohmann::json::parse(
      format_json({.is_json = true, .host = "alpha"}, std::vector{0, 1}, OutputStream::kOut, ""));
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

namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineCollapserTest : public ::testing::Test {
 protected:
  void add(int rank, std::string_view text, OutputStream stream = OutputStream::kOut) {
    lines_.add(rank, stream, text, now_);
  }

  void wait(milliseconds time) {
    now_ += time;
    lines_.on_time(now_);
  }

  LineCollapser& lines() { return lines_; }

  // Returns lines as "01:text": the ranks and the line.
  std::vector<std::string> taken() { return std::exchange(taken_, {}); }

 private:
  LineCollapser::Time now_{};
  std::vector<std::string> taken_;
  LineCollapser lines_{
      3, [this](std::span<const int> ranks, OutputStream stream, std::string_view text) {
        std::string line = stream == OutputStream::kErr ? "err " : "";
        for (const int rank : ranks) {
          line += std::to_string(rank);
        }
        taken_.push_back(line + ":" + std::string(text));
      }};
};

TEST_F(LineCollapserTest, WhatAllHaveWrittenComesAtOnce) {
  add(2, "a");
  add(0, "a");
  EXPECT_THAT(taken(), IsEmpty());
  add(1, "a");
  EXPECT_THAT(taken(), ElementsAre("012:a"));
  EXPECT_TRUE(lines().deadline().is_never());
}

TEST_F(LineCollapserTest, WhatSomeHaveWrittenWaits) {
  add(0, "a");
  add(2, "a");
  add(1, "b");
  wait(milliseconds(199));
  EXPECT_THAT(taken(), IsEmpty());
  wait(milliseconds(1));
  EXPECT_THAT(taken(), ElementsAre("02:a", "1:b"));
}

TEST_F(LineCollapserTest, EachRanksLinesStayInTheirOrder) {
  add(0, "a");
  add(0, "b");
  add(1, "b");
  add(1, "a");  // Comes after the rank's "b", so this line is not its first.
  lines().flush();
  EXPECT_THAT(taken(), ElementsAre("0:a", "01:b", "1:a"));
}

TEST_F(LineCollapserTest, TheSameLineTwiceIsTwoLines) {
  for (const int rank : {0, 0, 1, 2, 1, 2}) {
    add(rank, "a");
  }
  EXPECT_THAT(taken(), ElementsAre("012:a", "012:a"));
}

TEST_F(LineCollapserTest, StreamsAreApart) {
  add(0, "a");
  add(1, "a", OutputStream::kErr);
  lines().flush();
  EXPECT_THAT(taken(), ElementsAre("0:a", "err 1:a"));
}

TEST_F(LineCollapserTest, OfVeryManyTheFirstDoNotWait) {
  for (int i = 0; i < 1000; ++i) {
    add(0, std::to_string(i));
  }
  EXPECT_EQ(taken().size(), 1000U - 256U);
}

}  // namespace
}  // namespace unisono::launch
