#include "unisono/datasets/csv.h"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using Fields = std::vector<std::string>;

class Csv : public ::testing::Test {
 protected:
  std::vector<Fields> read(const std::string& text, const CsvOptions& options = {}) {
    CsvReader reader(files_.write("file.csv", text), options);
    std::vector<Fields> records;
    while (const std::optional<Fields> record = reader.next()) {
      records.push_back(*record);
    }
    EXPECT_EQ(reader.next(), std::nullopt);
    return records;
  }

  std::vector<Fields> read_plain(const std::string& text) {
    return read(text, {.has_header = false});
  }

  // Message of the error that reading throws, after the name of the file.
  std::string complaint(const std::string& text, const CsvOptions& options = {}) {
    const CaughtError error = error_of([&] { (void)read(text, options); });
    EXPECT_EQ(error.code, ErrorCode::kCorruptData);
    const std::string prefix = files_.path() + "/file.csv: ";
    EXPECT_THAT(error.message, ::testing::StartsWith(prefix));
    return error.message.substr(prefix.size());
  }

  test::TemporaryFolder files_;
};

TEST_F(Csv, RecordsBehindAHeader) {
  CsvReader reader(files_.write("file.csv", "name,age\nAda,36\nAlan,41\n"));
  EXPECT_THAT(reader.header(), ElementsAre("name", "age"));
  EXPECT_EQ(reader.column("age"), 1U);
  EXPECT_EQ(reader.next(), (Fields{"Ada", "36"}));
  EXPECT_EQ(reader.line(), 2);
  EXPECT_EQ(reader.next(), (Fields{"Alan", "41"}));
  EXPECT_EQ(reader.line(), 3);
  EXPECT_EQ(reader.next(), std::nullopt);
}

TEST_F(Csv, QuotedFieldsMayHoldEverything) {
  EXPECT_THAT(read_plain("a,\"b,\r\nc \"\"d\"\"\",\n\"\",\"\"\"\",x\n"),
              ElementsAre(Fields{"a", "b,\r\nc \"d\"", ""}, Fields{"", "\"", "x"}));
}

TEST_F(Csv, LineEndsOfBothKindsAndNoneAtTheEnd) {
  EXPECT_THAT(read_plain("a,b\r\nc,d\ne,"),
              ElementsAre(Fields{"a", "b"}, Fields{"c", "d"}, Fields{"e", ""}));
  EXPECT_THAT(read_plain("a,b\n\"c\",\"d\""), ElementsAre(Fields{"a", "b"}, Fields{"c", "d"}));
  EXPECT_THAT(read_plain(""), IsEmpty());
}

TEST_F(Csv, EmptyLinesAreSkippedUnlessTheyAreRecords) {
  EXPECT_THAT(read_plain("a,b\n\r\n\nc,d\n\n"), ElementsAre(Fields{"a", "b"}, Fields{"c", "d"}));
  EXPECT_THAT(read_plain("a\n\nc\n"), ElementsAre(Fields{"a"}, Fields{""}, Fields{"c"}));
}

TEST_F(Csv, AByteOrderMarkAndGzipMakeNoDifference) {
  EXPECT_THAT(read_plain("\xEF\xBB\xBF"
                         "a,b\n"),
              ElementsAre(Fields{"a", "b"}));
  EXPECT_THAT(read_plain(gzip("a,b\n")), ElementsAre(Fields{"a", "b"}));
  EXPECT_THAT(read_plain("\xEF\xBB"), ElementsAre(Fields{"\xEF\xBB"}));
}

TEST_F(Csv, AnotherDelimiter) {
  EXPECT_THAT(read("a;b\n1,5;\"2;3\"\n", {.delimiter = ';'}), ElementsAre(Fields{"1,5", "2;3"}));
  for (const char delimiter : {'"', '\n', '\r'}) {
    EXPECT_EQ(error_of([&] { (void)read("", {.delimiter = delimiter}); }).code,
              ErrorCode::kInvalidArgument);
  }
}

TEST_F(Csv, ManyRecordsAcrossTheReadersBuffer) {
  std::string text = "number,text\n";
  for (int i = 0; i < 20'000; ++i) {
    text += std::to_string(i) + ",\"text \"\"" + std::to_string(i) + "\"\"\"\r\n";
  }
  const std::vector<Fields> records = read(text);
  ASSERT_EQ(records.size(), 20'000U);
  for (std::size_t i = 0; i < records.size(); ++i) {
    const std::string number = std::to_string(i);
    ASSERT_EQ(records[i], (Fields{number, "text \"" + number + "\""}));
  }
}

TEST_F(Csv, MistakesAreNamedWithLineAndColumn) {
  EXPECT_THAT(complaint("a,b\n1,2\n3\n"),
              HasSubstr("line 3, column 2: 1 fields, but the records before have 2"));
  EXPECT_THAT(complaint("a,b\n1,2,3\n"), HasSubstr("line 2, column 5: more than 2 fields"));
  EXPECT_THAT(complaint("a,b\n1,x\"y\n"),
              HasSubstr("line 2, column 4: a quote in a field without quotes"));
  EXPECT_THAT(complaint("a,b\n\"1\n\",\"x\"y\n"),
              HasSubstr("line 3, column 6: the field goes on behind its closing quote"));
  EXPECT_THAT(complaint("a,b\n1,\"x\ny\nz"),
              HasSubstr("line 2, column 3: the quote that begins here is never closed"));
  EXPECT_THAT(complaint("a,b\n1,2\r3,4\n"), HasSubstr("line 2, column 4: a CR without LF"));
  EXPECT_THAT(complaint("a,b\n1,12345678\n", {.max_field_bytes = 7}),
              AllOf(HasSubstr("line 2, column 3: a field of more than 7 bytes")));
  EXPECT_THAT(complaint(""), HasSubstr("line 1, column 1: the file is empty"));
  EXPECT_THAT(complaint(std::string(1 << 16, ',')), HasSubstr("more than 65536 fields"));
}

TEST_F(Csv, AnUnknownColumnIsNamedWithThoseThatAreThere) {
  const CsvReader reader(files_.write("file.csv", "name,age\n"));
  const CaughtError error = error_of([&] { (void)reader.column("size"); });
  EXPECT_EQ(error.code, ErrorCode::kNotFound);
  EXPECT_THAT(error.message, HasSubstr("there is no column \"size\", only name, age"));
}

}  // namespace
}  // namespace unisono::datasets
