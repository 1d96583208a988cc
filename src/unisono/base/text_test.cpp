#include "unisono/base/text.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

using std::string_literals::operator""s;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

// Returns at most `n_most` bytes at a time, so that each position is the end of a read once.
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

TEST(Utf8, ATextThatFitsIsLeftWhole) {
  EXPECT_EQ(utf8_prefix("", 0), "");
  EXPECT_EQ(utf8_prefix("d\u00e9j\u00e0", 6), "d\u00e9j\u00e0");
}

TEST(Utf8, NoCharacterIsCut) {
  // Characters of 1, 2, 3 and 4 bytes.
  const std::string text = "a\u00e9\u20ac\U0001f600z";
  for (const std::size_t n_bytes : {0U, 1U, 3U, 6U, 10U}) {
    EXPECT_EQ(utf8_prefix(text, n_bytes), text.substr(0, n_bytes));
  }
  EXPECT_EQ(utf8_prefix(text, 2), text.substr(0, 1));
  EXPECT_EQ(utf8_prefix(text, 5), text.substr(0, 3));
  EXPECT_EQ(utf8_prefix(text, 9), text.substr(0, 6));
}

TEST(Utf8, WhatIsNoCharacterBecomesAQuestionMark) {
  const std::string text = "a\u00e9\u20ac\ud7ff\U0001f600\U0010ffffz";
  EXPECT_EQ(as_utf8(text), text);
  EXPECT_EQ(as_utf8("\xff\x80z"), "??z");
  EXPECT_EQ(as_utf8("\xc0\x80"), "??");              // An overlong encoding.
  EXPECT_EQ(as_utf8("\xe0\x9f\xbf"), "???");         // Another overlong encoding.
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), "???");         // A surrogate.
  EXPECT_EQ(as_utf8("\xf4\x90\x80\x80"), "????");    // Beyond the last character.
  EXPECT_EQ(as_utf8("\xe2\x82z\xe2\x82"), "??z??");  // Truncated sequences.
}

TEST(Utf8, OtherBytesAreCutAnywhere) {
  const std::string text(20, '\x80');
  EXPECT_EQ(utf8_prefix(text, 10), text.substr(0, 10));
  EXPECT_EQ(utf8_prefix(text, 2), text.substr(0, 2));
}

TEST(RandomHex, IsAnotherOneEachTime) {
  const std::string first = random_hex(32);
  EXPECT_THAT(first, ::testing::MatchesRegex("[0-9a-f]+"));
  EXPECT_EQ(first.size(), 64U);
  EXPECT_NE(first, random_hex(32));
}

}  // namespace
}  // namespace unisono
