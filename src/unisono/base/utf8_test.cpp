#include "unisono/base/utf8.h"

#include <string>

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Utf8, ATextThatFitsIsLeftWhole) {
  EXPECT_EQ(utf8_prefix("", 0), "");
  EXPECT_EQ(utf8_prefix("d\u00e9j\u00e0", 6), "d\u00e9j\u00e0");
}

TEST(Utf8, NoCharacterIsCut) {
  // 1, 2, 3 and 4 bytes.
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
  EXPECT_EQ(as_utf8("\xc0\x80"), "??");              // Longer than needed.
  EXPECT_EQ(as_utf8("\xe0\x9f\xbf"), "???");         // The same.
  EXPECT_EQ(as_utf8("\xed\xa0\x80"), "???");         // A surrogate.
  EXPECT_EQ(as_utf8("\xf4\x90\x80\x80"), "????");    // Beyond the last character.
  EXPECT_EQ(as_utf8("\xe2\x82z\xe2\x82"), "??z??");  // Cut.
}

TEST(Utf8, OtherBytesAreCutAnywhere) {
  const std::string text(20, '\x80');
  EXPECT_EQ(utf8_prefix(text, 10), text.substr(0, 10));
  EXPECT_EQ(utf8_prefix(text, 2), text.substr(0, 2));
}

}  // namespace
}  // namespace unisono
