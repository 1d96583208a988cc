#include "unisono/launch/output/line_collapser.h"

#include <chrono>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineCollapserTest : public ::testing::Test {
 protected:
  void add(int rank, std::string_view text, Stream stream = Stream::kOut) {
    lines_.add(rank, stream, text, now_);
  }

  void wait(milliseconds time) {
    now_ += time;
    lines_.on_time(now_);
  }

  LineCollapser& lines() { return lines_; }

  // "01:text", of the ranks and the line.
  std::vector<std::string> taken() { return std::exchange(taken_, {}); }

 private:
  LineCollapser::Time now_{};
  std::vector<std::string> taken_;
  LineCollapser lines_{3, [this](std::span<const int> ranks, Stream stream, std::string_view text) {
                         std::string line = stream == Stream::kErr ? "err " : "";
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
  add(1, "a");  // Behind its "b", so not the first one.
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
  add(1, "a", Stream::kErr);
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
