#include "unisono/base/text_lines.h"

#include <algorithm>
#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

using std::string_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Gives at most `n_most` bytes at a time, so that every place is once the end of a read.
TextLines::Read read_from(std::string text, std::size_t n_most) {
  return [text = std::move(text), n_most, at = std::size_t{0}](std::span<std::byte> into) mutable {
    const std::size_t n_bytes = std::min({n_most, into.size(), text.size() - at});
    const auto bytes = std::as_bytes(std::span(text)).subspan(at, n_bytes);
    std::ranges::copy(bytes, into.begin());
    at += n_bytes;
    return n_bytes;
  };
}

std::vector<std::string> lines_of(const std::string& text, std::size_t n_most = 4096) {
  TextLines source("list.txt", read_from(text, n_most));
  std::vector<std::string> lines;
  while (std::optional<std::string> line = source.next()) {
    lines.push_back(*line);
  }
  return lines;
}

std::string error_of(const std::string& text) {
  try {
    static_cast<void>(lines_of(text));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "no error";
}

class TextInParts : public ::testing::TestWithParam<std::size_t> {};

TEST_P(TextInParts, SixSpellingsGiveTheSameLines) {
  for (const std::string& text : {"a\nb\n"s,
                                  "a\nb"s,
                                  "a\r\nb\r\n"s,
                                  "\xEF\xBB\xBF"
                                  "a\nb\n"s,
                                  "\xEF\xBB\xBF"
                                  "a\r\nb"s,
                                  "a\nb\n\n\r\n\n"s}) {
    EXPECT_THAT(lines_of(text, GetParam()), ElementsAre("a", "b")) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(BytesPerRead, TextInParts, ::testing::Values(1, 2, 3, 4, 5, 4096));

TEST(TextLines, EmptyLinesWithinTheTextStay) {
  EXPECT_THAT(lines_of("\na\n\n\nb\n"), ElementsAre("", "a", "", "", "b"));
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("\n\n"), IsEmpty());
  EXPECT_THAT(lines_of("\xEF\xBB\xBF"), IsEmpty());
}

TEST(TextLines, LinesAreNumberedAsAnEditorDoes) {
  TextLines source("list.txt", read_from("a\n\nb\n", 2));
  EXPECT_EQ(source.next(), "a");
  EXPECT_EQ(source.line(), 1);
  EXPECT_EQ(source.next(), "");
  EXPECT_EQ(source.line(), 2);
  EXPECT_EQ(source.next(), "b");
  EXPECT_EQ(source.line(), 3);
  EXPECT_EQ(source.next(), std::nullopt);
}

TEST(TextLines, EncodingsAreNamedWithTheCommandThatConverts) {
  EXPECT_THAT(error_of("\xFF\xFE"
                       "a\0\n\0"s),
              HasSubstr("list.txt: the text is UTF-16LE, and must be UTF-8; convert it: iconv -f "
                        "UTF-16LE -t UTF-8"));
  EXPECT_THAT(error_of("\xFE\xFF\0a\0\n"s), HasSubstr("UTF-16BE"));
  EXPECT_THAT(error_of("a\0\n\0"s), HasSubstr("UTF-16LE"));
  EXPECT_THAT(error_of("\0a\0\n"s), HasSubstr("UTF-16BE"));
  EXPECT_THAT(error_of("\xFF\xFE\0\0a\0\0\0"s), HasSubstr("UTF-32LE"));
  EXPECT_THAT(error_of("\0\0\xFE\xFF\0\0\0a"s), HasSubstr("UTF-32BE"));
}

TEST(TextLines, LoneCarriageReturnsAndNulBytesAreRefused) {
  EXPECT_THAT(error_of("a\rb\r"), HasSubstr("list.txt: line 1: a CR without LF at byte 2"));
  EXPECT_THAT(error_of("a\nb\r"), HasSubstr("list.txt: line 2: a CR without LF at byte 2"));
  EXPECT_THAT(error_of("ok\nab\0c\n"s), HasSubstr("list.txt: line 2: a NUL byte at byte 3"));
}

TEST(TextLines, ALineWithoutEndIsRefused) {
  EXPECT_THAT(error_of("ok\n" + std::string(TextLines::kMaxLineBytes + 1, 'a')).substr(0, 60),
              HasSubstr("list.txt: line 2: more than 16777216 bytes"));
}

TEST(EscapeText, ShowsWhatCannotBeSeen) {
  EXPECT_EQ(escape_text("plain \xC3\xA9"), "plain \xC3\xA9");
  EXPECT_EQ(escape_text("a\tb\r\n"), "a\\tb\\r\\n");
  EXPECT_EQ(escape_text("\xEF\xBB\xBF"
                        "7"),
            "\\uFEFF7");
  EXPECT_EQ(escape_text("a\xC2\xA0"
                        "b\xE2\x80\x8B"),
            "a\\u00A0b\\u200B");
  EXPECT_EQ(escape_text("\x01\x7F\xFF"), "\\x01\\x7F\\xFF");
  EXPECT_EQ(escape_text(std::string(100, 'x'), 4), "xxxx...");
}

}  // namespace
}  // namespace unisono
