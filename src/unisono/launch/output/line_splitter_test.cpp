#include "unisono/launch/output/line_splitter.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
}  // namespace unisono::launch
