#include "unisono/datasets/text.h"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/text.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

MATCHER_P2(IsText, text, label, "") {
  return arg.text == text && arg.label == label;
}

class LabeledTexts : public ::testing::Test {
 protected:
  CaughtError error_of_tsv(const std::string& text) {
    const std::string path = files_.write("file.tsv", text);
    return error_of([&] { (void)read_labeled_tsv(path); });
  }

  test::TemporaryFolder files_;
};

TEST_F(LabeledTexts, ATextALine) {
  const std::string text = "0\tbad\tfilm\n12\tgood\r\n1\t\n0\tno end";
  for (const std::string& bytes : {text, gzip(text)}) {
    EXPECT_THAT(
        read_labeled_tsv(files_.write("file.tsv", bytes)),
        ElementsAre(
            IsText("bad\tfilm", 0), IsText("good", 12), IsText("", 1), IsText("no end", 0)));
  }
  EXPECT_THAT(read_labeled_tsv(files_.write("empty.tsv", "")), IsEmpty());
}

TEST_F(LabeledTexts, ALineWithoutLabelIsNamed) {
  for (const std::string line : {"good", "x\tgood", "-1\tgood", "1x\tgood", "\tgood", ""}) {
    const CaughtError error = error_of_tsv("0\tbad\n" + line + "\n1\tgood\n");
    EXPECT_EQ(error.code, ErrorCode::kCorruptData);
    EXPECT_THAT(error.message,
                HasSubstr("file.tsv: line 2: does not begin with a label and a TAB, but with \"" +
                          escape_text(line) + "\""));
  }
  EXPECT_THAT(error_of_tsv("99999999999999999999\tx\n").message, HasSubstr("line 1:"));
  EXPECT_THAT(error_of_tsv("0\t" + std::string((16 << 20), 'x')).message,
              HasSubstr("line 1: more than 16777216 bytes"));
}

TEST_F(LabeledTexts, ReviewsAsCsv) {
  EXPECT_THAT(read_imdb_csv(files_.write("imdb.csv",
                                         "id,sentiment,review\n1,negative,\"Bad, \"\"really\"\"\"\n"
                                         "2,positive,Good\n")),
              ElementsAre(IsText("Bad, \"really\"", 0), IsText("Good", 1)));
  const std::string path =
      files_.write("imdb.csv", "review,sentiment\n\"a\nb\",positive\nx,so so\n");
  const CaughtError error = error_of([&] { (void)read_imdb_csv(path); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_THAT(error.message, HasSubstr("line 4: the sentiment is \"so so\""));
}

TEST_F(LabeledTexts, ReviewsAsAclImdbHasThem) {
  // A folder listing with many files is not sorted.
  std::vector<std::string> expected;
  for (int id = 29; id >= 0; --id) {
    expected.insert(expected.begin(), "text " + std::to_string(id));
    (void)files_.write("train/neg/" + std::to_string(id) + "_2.txt", expected.front());
  }
  (void)files_.write("train/neg/urls.list", "no review");
  (void)files_.write("train/pos/0_9.txt", "fine\n");
  std::vector<LabeledText> texts = load_acl_imdb(files_.path(), Split::kTrain);
  ASSERT_EQ(texts.size(), 31U);
  EXPECT_THAT(texts.back(), IsText("fine", 1));
  texts.pop_back();
  std::vector<std::string> negative;
  for (const LabeledText& text : texts) {
    EXPECT_EQ(text.label, 0);
    negative.push_back(text.text);
  }
  EXPECT_EQ(negative, expected);

  const CaughtError missing = error_of([&] { (void)load_acl_imdb(files_.path(), Split::kTest); });
  EXPECT_EQ(missing.code, ErrorCode::kNotFound);
  EXPECT_THAT(missing.message, HasSubstr("/test/neg\": there is no such folder"));
  (void)files_.write("test/neg/README", "");
  EXPECT_THAT(error_of([&] { (void)load_acl_imdb(files_.path(), Split::kTest); }).message,
              HasSubstr("has no reviews"));
  (void)files_.write("test/neg/first_1.txt", "x");
  EXPECT_THAT(error_of([&] { (void)load_acl_imdb(files_.path(), Split::kTest); }).message,
              HasSubstr("first_1.txt: the name is not of the form ID_RATING.txt"));
}

TEST_F(LabeledTexts, WhatSystemsLeaveBehindIsNoReview) {
  for (const std::string folder : {"train/neg/", "train/pos/"}) {
    (void)files_.write("aclImdb/" + folder + "0_3.txt", "x");
  }
  // The parent folder of aclImdb.
  const std::vector<LabeledText> expected = load_acl_imdb(files_.path(), Split::kTrain);
  ASSERT_EQ(expected.size(), 2U);
  for (const std::string name : {"._0_3.txt", ".ipynb_checkpoints/0_3-checkpoint.txt", "urls"}) {
    (void)files_.write("aclImdb/train/neg/" + name, "\x01");
  }
  ::testing::internal::CaptureStderr();
  const std::vector<LabeledText> texts = load_acl_imdb(files_.path() + "/aclImdb", Split::kTrain);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("/aclImdb\": entries left out: 2 of systems and tools (train/neg/"));
  EXPECT_THAT(texts, ElementsAre(IsText("x", 0), IsText("x", 1)));
}

TEST(ImdbRealFiles, BecomePaddedBatches) {
  const std::string name = "imdb_subset_train_5000.tsv.gz";
  if (!datasets::testing::has_real_data(name)) {
    GTEST_SKIP() << datasets::testing::why_skipped(name);
  }
  const std::vector<LabeledText> texts = read_labeled_tsv(datasets::testing::real_data_path(name));
  ASSERT_EQ(texts.size(), 5000U);
  const Vocabulary vocabulary = Vocabulary::of(texts, {.max_tokens = 10'000});
  EXPECT_EQ(vocabulary.ntokens(), 10'000);
  EXPECT_EQ(vocabulary.tokens()[2], "the");

  const auto dataset = std::make_shared<TextDataset>(texts, vocabulary, 256);
  CollatingLoader loader(dataset, PadToLongest{.pad_token = Vocabulary::kPad}, {.num_workers = 2});
  loader.start(LengthBucketedSampler(dataset->lengths(), 1, 0, {.batch_size = 32}));
  std::int64_t n_texts = 0;
  std::int64_t n_positive = 0;
  while (const std::optional<PaddedBatch> batch = loader.next()) {
    EXPECT_LE(batch->longest, 256);
    n_texts += batch->size();
    for (const std::int64_t label : batch->labels) {
      n_positive += label;
    }
  }
  EXPECT_EQ(n_texts, 5000);
  EXPECT_EQ(n_positive, 2500);
}

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
  EXPECT_THAT(doubled.message, HasSubstr("token 3, \"a\", occurs twice"));
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

// Text i has i tokens, all i, and the label 10 * i.
class NumberedTexts {
 public:
  [[nodiscard]] std::int64_t size() const { return 4; }

  [[nodiscard]] TokenSample sample(std::int64_t index) const {
    return {.tokens = std::vector<std::int64_t>(static_cast<std::size_t>(index), index),
            .label = 10 * index};
  }
};

class PadToLongestWorkers : public ::testing::TestWithParam<int> {};

TEST_P(PadToLongestWorkers, TextsArePaddedToTheLongestOfTheirBatch) {
  CollatingLoader loader(std::make_shared<NumberedTexts>(),
                         PadToLongest{.pad_token = -1},
                         {.batch_size = 2, .num_workers = GetParam()});
  loader.start({1, 3, 0, 2, 0});
  const std::optional<PaddedBatch> first = loader.next();
  ASSERT_TRUE(first);
  EXPECT_EQ(first->size(), 2);
  EXPECT_EQ(first->longest, 3);
  EXPECT_THAT(first->tokens, ElementsAre(1, -1, -1, 3, 3, 3));
  EXPECT_THAT(first->lengths, ElementsAre(1, 3));
  EXPECT_THAT(first->labels, ElementsAre(10, 30));
  const std::optional<PaddedBatch> second = loader.next();
  ASSERT_TRUE(second);
  EXPECT_THAT(second->row(0), ElementsAre(-1, -1));
  EXPECT_THAT(second->row(1), ElementsAre(2, 2));
  const std::optional<PaddedBatch> empty_texts = loader.next();
  ASSERT_TRUE(empty_texts);
  EXPECT_THAT(empty_texts->tokens, IsEmpty());
  EXPECT_THAT(empty_texts->lengths, ElementsAre(0));
  EXPECT_FALSE(loader.next());
}

INSTANTIATE_TEST_SUITE_P(NumWorkers, PadToLongestWorkers, ::testing::Values(0, 1, 3));

}  // namespace
}  // namespace unisono::datasets
