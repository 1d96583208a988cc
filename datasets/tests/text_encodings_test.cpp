// One content in eight encodings, for every reader of texts.
#include <cstdint>
#include <functional>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/datasets/csv.h"
#include "unisono/datasets/sound_dataset.h"
#include "unisono/datasets/text.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using testing::gzip;
using ::testing::HasSubstr;
using ::testing::SizeIs;

using Values = std::vector<std::string>;

constexpr const char* kMark = "\xEF\xBB\xBF";

std::string with_line_ends(const std::string& lines, const std::string& end) {
  std::string text;
  for (const char character : lines) {
    text += character == '\n' ? end : std::string(1, character);
  }
  return text;
}

std::string as_utf16(const std::string& ascii) {
  std::string text = "\xFF\xFE";
  for (const char character : ascii) {
    text += {character, '\0'};
  }
  return text;
}

Values values_of(const std::vector<LabeledText>& texts) {
  Values values;
  for (const LabeledText& text : texts) {
    values.push_back(std::to_string(text.label) + " " + text.text);
  }
  return values;
}

Values read_tsv(const test::TemporaryFolder& files, const std::string& bytes) {
  return values_of(read_labeled_tsv(files.write("list.txt", bytes)));
}

Values read_csv(const test::TemporaryFolder& files, const std::string& bytes) {
  CsvReader reader(files.write("list.txt", bytes));
  Values values = reader.header();
  while (const std::optional<Values> record = reader.next()) {
    values.insert(values.end(), record->begin(), record->end());
    values.push_back(std::to_string(reader.line()));
  }
  return values;
}

Values read_reviews(const test::TemporaryFolder& files, const std::string& bytes) {
  return values_of(read_imdb_csv(files.write("list.txt", bytes)));
}

Values read_review_files(const test::TemporaryFolder& files, const std::string& bytes) {
  (void)files.write("train/neg/0_1.txt", bytes);
  (void)files.write("train/pos/0_9.txt", bytes);
  return values_of(load_acl_imdb(files.path(), Split::kTrain));
}

Values read_wav_list(const test::TemporaryFolder& files, const std::string& bytes) {
  const WavList sounds(files.write("list.txt", bytes), "wavs", 0);
  Values values = sounds.ids();
  for (std::int64_t index = 0; index < sounds.size(); ++index) {
    values.push_back(std::to_string(sounds.label(index)) + " " + sounds.path(index));
  }
  return values;
}

struct TextReader {
  const char* name;
  const char* lines;
  std::function<Values(const test::TemporaryFolder&, const std::string&)> read;

  friend std::ostream& operator<<(std::ostream& out, const TextReader& reader) {
    return out << reader.name;
  }
};

class TextReaders : public ::testing::TestWithParam<TextReader> {
 protected:
  [[nodiscard]] Values read(const std::string& bytes) const {
    Values values = GetParam().read(files_, bytes);
    EXPECT_EQ(GetParam().read(files_, gzip(bytes)), values);
    return values;
  }

  [[nodiscard]] std::string complaint(const std::string& bytes) const {
    const CaughtError error = error_of([&] { (void)read(bytes); });
    EXPECT_EQ(error.code, ErrorCode::kCorruptData);
    return error.message;
  }

  test::TemporaryFolder files_;
};

TEST_P(TextReaders, TakeOneContentInSixEncodingsAndNameTwo) {
  const std::string lines = GetParam().lines;
  const std::string text = lines + "\n";
  const Values expected = read(text);
  ASSERT_THAT(expected, SizeIs(::testing::Gt(1U)));
  EXPECT_EQ(read(lines), expected);
  EXPECT_EQ(read(with_line_ends(text, "\r\n")), expected);
  EXPECT_EQ(read(kMark + text), expected);
  EXPECT_EQ(read(kMark + with_line_ends(text, "\r\n")), expected);
  EXPECT_EQ(read(text + "\n\r\n\n"), expected);
  EXPECT_THAT(complaint(as_utf16(text)), AllOf(HasSubstr(".txt: "), HasSubstr("UTF-16LE")));
  EXPECT_THAT(complaint(with_line_ends(text, "\r")),
              AllOf(HasSubstr(".txt: line 1"), HasSubstr("a CR without LF")));
}

INSTANTIATE_TEST_SUITE_P(
    All,
    TextReaders,
    ::testing::Values(
        TextReader{.name = "Tsv", .lines = "0\tbad film\n1\tgood film", .read = read_tsv},
        TextReader{.name = "Csv", .lines = "name,age\nAda,36\nAlan,41", .read = read_csv},
        TextReader{.name = "CsvOfOneColumn", .lines = "name\nAda\n\nAlan", .read = read_csv},
        TextReader{.name = "ReviewsAsCsv",
                   .lines = "review,sentiment\nbad,negative\ngood,positive",
                   .read = read_reviews},
        TextReader{
            .name = "ReviewsAsFiles", .lines = "a film\nof two lines", .read = read_review_files},
        TextReader{
            .name = "WavList", .lines = "b b/1.wav\na a/1.wav\nb b/2.wav", .read = read_wav_list}),
    [](const auto& reader) { return std::string(reader.param.name); });

}  // namespace
}  // namespace unisono::datasets
