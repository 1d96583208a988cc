#include "unisono/data/readers/labeled_text.h"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/text_lines.h"
#include "unisono/data/collating_loader.h"
#include "unisono/data/pad_to_longest.h"
#include "unisono/data/readers/text_dataset.h"
#include "unisono/data/readers/vocabulary.h"
#include "unisono/data/samplers/length_bucketed_sampler.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/testing/real_data.h"

#include "support/temporary_folder.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using data::testing::gzip;
using ::testing::ElementsAre;
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
  // Many, so that the folder has them in no order.
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
  // The folder that the archive was unpacked in.
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
  if (!data::testing::has_real_data(name)) {
    GTEST_SKIP() << data::testing::why_skipped(name);
  }
  const std::vector<LabeledText> texts = read_labeled_tsv(data::testing::real_data_path(name));
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

}  // namespace
}  // namespace unisono
