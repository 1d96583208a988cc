#include "unisono/data/readers/vocabulary.h"

#include <cstdint>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/readers/labeled_text.h"
#include "unisono/data/readers/text_dataset.h"
#include "unisono/data/readers/tokenizer.h"
#include "unisono/data/testing/idx_writer.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<LabeledText> texts(const std::vector<std::string>& contents) {
  std::vector<LabeledText> all;
  for (const std::string& content : contents) {
    all.push_back({.text = content, .label = static_cast<std::int64_t>(all.size())});
  }
  return all;
}

TEST(Tokenize, AsTorchtextsBasicEnglish) {
  EXPECT_THAT(tokenize("You can now install TorchText using pip!"),
              ElementsAre("you", "can", "now", "install", "torchtext", "using", "pip", "!"));
  EXPECT_THAT(
      tokenize("It's \"good\" (really).<br /><BR />No: one;two, three?"),
      ElementsAre(
          "it", "'", "s", "good", "(", "really", ")", ".", "no", "one", "two", ",", "three", "?"));
  EXPECT_THAT(tokenize(" \t\r\n\v\f"), IsEmpty());
  EXPECT_THAT(tokenize("a<br/>b <br /"), ElementsAre("a<br/>b", "<br", "/"));
  EXPECT_THAT(tokenize("na\xC3\xAFve"), ElementsAre("na\xC3\xAFve"));
}

TEST(Vocabulary, NumbersTokensByHowOftenTheyCome) {
  const Vocabulary vocabulary = Vocabulary::of(texts({"b a c a", "c d a", "<pad> <unk>"}));
  EXPECT_THAT(vocabulary.tokens(), ElementsAre("<pad>", "<unk>", "a", "c", "b", "d"));
  EXPECT_EQ(vocabulary.ntokens(), 6);
  EXPECT_EQ(vocabulary.number("c"), 3);
  EXPECT_EQ(vocabulary.number("zebra"), Vocabulary::kUnknown);
  EXPECT_THAT(vocabulary.encode("A zebra, c"), ElementsAre(2, 1, 1, 3));
  EXPECT_THAT(vocabulary.encode("a b c", 2), ElementsAre(2, 4));
}

TEST(Vocabulary, HasAtMostSoManyTokensAndNoRareOnes) {
  const std::vector<LabeledText> all = texts({"a a a b b c"});
  EXPECT_THAT(Vocabulary::of(all, {.max_tokens = 3}).tokens(), ElementsAre("<pad>", "<unk>", "a"));
  EXPECT_THAT(Vocabulary::of(all, {.min_count = 2}).tokens(),
              ElementsAre("<pad>", "<unk>", "a", "b"));
  EXPECT_EQ(Vocabulary::of({}).ntokens(), 2);
  EXPECT_THAT(error_of([&] { (void)Vocabulary::of(all, {.max_tokens = 1}); }).message,
              HasSubstr("max_tokens is 1"));
}

TEST(Vocabulary, ComesBackFromItsTokens) {
  const Vocabulary vocabulary = Vocabulary::of(texts({"to be or not to be"}));
  const Vocabulary again(vocabulary.tokens());
  EXPECT_EQ(again.encode("not to be"), vocabulary.encode("not to be"));
  const CaughtError doubled = error_of([] { (void)Vocabulary({"<pad>", "<unk>", "a", "a"}); });
  EXPECT_EQ(doubled.code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(doubled.message, HasSubstr("token 3, \"a\", is there twice"));
  EXPECT_THAT(error_of([] { (void)Vocabulary({"<pad>"}); }).message, HasSubstr("1 tokens"));
}

TEST(TextDataset, HasTheNumbersOfEachText) {
  const std::vector<LabeledText> all = texts({"a b", "", "b b b b"});
  const TextDataset dataset(all, Vocabulary::of(all), 3);
  EXPECT_EQ(dataset.size(), 3);
  EXPECT_THAT(dataset.sample(0).tokens, ElementsAre(3, 2));
  EXPECT_THAT(dataset.sample(2).tokens, ElementsAre(2, 2, 2));
  EXPECT_EQ(dataset.sample(2).label, 2);
  EXPECT_THAT(dataset.lengths(), ElementsAre(2, 0, 3));
}

}  // namespace
}  // namespace unisono
