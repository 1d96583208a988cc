#include "unisono/datasets/record_file.h"

#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/data_loader.h"
#include "unisono/datasets/record_format.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::some_bytes;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

class RecordFiles : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path() const { return files_.path() + "/data.rec"; }

  // The bytes of the file.
  std::string write(const std::vector<std::string>& records) {
    RecordWriter writer(path());
    for (const std::string& record : records) {
      writer.add(bytes_of(record));
    }
    writer.finish();
    return test::read_file(path());
  }

  // Error of opening the file and reading all records.
  CaughtError error_of_reading(const std::string& bytes) {
    (void)files_.write("data.rec", bytes);
    return error_of([&] {
      const RecordFile file(path());
      for (std::int64_t index = 0; index < file.size(); ++index) {
        (void)file.sample(index);
      }
    });
  }

  test::TemporaryFolder files_;
};

TEST_F(RecordFiles, RecordsComeBackInAnyOrder) {
  const std::string large = some_bytes(std::size_t{3} << 20);
  (void)write({"first", "", large, "last"});
  const RecordFile file(path());
  ASSERT_EQ(file.size(), 4);
  EXPECT_EQ(text_of(file.sample(3)), "last");
  EXPECT_EQ(text_of(file.sample(0)), "first");
  EXPECT_EQ(text_of(file.sample(2)), large);
  EXPECT_EQ(text_of(file.sample(1)), "");
  EXPECT_THAT(files_.names(), ElementsAre("data.rec"));
}

TEST_F(RecordFiles, AnEmptyFileHasNoRecords) {
  (void)write({});
  EXPECT_EQ(RecordFile(path()).size(), 0);
}

TEST_F(RecordFiles, ALoadersWorkersReadIt) {
  std::vector<std::string> records;
  for (int i = 0; i < 300; ++i) {
    records.push_back(std::to_string(i));
  }
  (void)write(records);
  CollatingLoader loader(std::make_shared<RecordFile>(path()),
                         [](const std::vector<std::vector<std::byte>>& samples) {
                           std::string text;
                           for (const std::vector<std::byte>& sample : samples) {
                             text += text_of(sample) + " ";
                           }
                           return text;
                         },
                         {.batch_size = 3, .num_workers = 3});
  loader.start({299, 0, 150, 7});
  EXPECT_EQ(loader.next(), "299 0 150 ");
  EXPECT_EQ(loader.next(), "7 ");
}

TEST_F(RecordFiles, AppearWholeOrNotAtAll) {
  {
    RecordWriter writer(path());
    writer.add(bytes_of("lost"));
  }
  EXPECT_THAT(files_.names(), IsEmpty());
  RecordWriter writer(path());
  writer.finish();
  EXPECT_THAT(error_of([&] { writer.add(bytes_of("late")); }).message,
              HasSubstr("the file is finished"));
  EXPECT_THAT(error_of([&] { writer.finish(); }).message, HasSubstr("the file is finished"));
  EXPECT_EQ(error_of([&] { const RecordWriter nowhere(files_.path() + "/no/where"); }).code,
            ErrorCode::kSystem);
}

TEST_F(RecordFiles, EveryTruncationIsNoticed) {
  const std::string bytes = write({"first", "second", ""});
  for (std::size_t n_left = 0; n_left < bytes.size(); ++n_left) {
    const CaughtError error = error_of_reading(bytes.substr(0, n_left));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << n_left;
    EXPECT_THAT(error.message, AnyOf(HasSubstr("truncated"), HasSubstr("is not a record file")));
  }
}

TEST_F(RecordFiles, EveryFlippedBitIsNoticed) {
  const std::string bytes = write({"first", "second", ""});
  for (std::size_t at = 0; at < bytes.size(); ++at) {
    for (const int bit : {0, 3, 7}) {
      std::string damaged = bytes;
      damaged[at] = static_cast<char>(damaged[at] ^ (1 << bit));
      EXPECT_EQ(error_of_reading(damaged).code, ErrorCode::kCorruptData)
          << "byte " << at << ", bit " << bit;
    }
  }
}

TEST_F(RecordFiles, ADamagedRecordIsNamedAndOthersAreRead) {
  std::string bytes = write({"first", "second"});
  bytes[15] ^= 1;
  (void)files_.write("data.rec", bytes);
  const RecordFile file(path());
  EXPECT_EQ(text_of(file.sample(0)), "first");
  EXPECT_EQ(error_of([&] { (void)file.sample(1); }).message,
            path() +
                ": record 1, at offset 13: the check sum of its 6 bytes is wrong; fetch the "
                "file again");
  EXPECT_THAT(error_of([&] { (void)file.sample(2); }).message,
              HasSubstr("record 2 was requested, but there are 2"));
  EXPECT_EQ(error_of([&] { (void)file.sample(-1); }).code, ErrorCode::kInvalidArgument);
}

TEST_F(RecordFiles, OneRecordInPlaceOfAnotherIsNoticed) {
  std::string bytes = write({"one", "two"});
  // The entries follow the magic and the records.
  std::swap_ranges(bytes.begin() + 14, bytes.begin() + 30, bytes.begin() + 30);
  EXPECT_THAT(error_of_reading(bytes).message, HasSubstr("record 0, at offset 11: the check sum"));
}

TEST_F(RecordFiles, AnIndexThatPointsElsewhereTakesNoMemory) {
  std::string bytes = write({"first"});
  // The length in the single entry.
  bytes.replace(13 + 8, 4, "\xff\xff\xff\xff");
  EXPECT_THAT(error_of_reading(bytes).message,
              HasSubstr("record 0, at offset 13: its entry in the index gives 4294967295 bytes at "
                        "offset 8, outside the records"));
  const auto footer = encode(RecordFooter{.index_offset = 13, .n_records = 1ULL << 60});
  std::ranges::transform(
      footer, bytes.end() - 32, [](std::byte byte) { return static_cast<char>(byte); });
  EXPECT_THAT(error_of_reading(bytes).message,
              HasSubstr("an index of 1152921504606846976 records at offset 13 does not fit"));
}

TEST_F(RecordFiles, AFileThatShrinksWhileItIsReadIsAnErrorAndNoSignal) {
  (void)write({some_bytes(100'000), "last"});
  const RecordFile file(path());
  ASSERT_EQ(::truncate(path().c_str(), 50'000), 0);
  EXPECT_THAT(error_of([&] { (void)file.sample(0); }).message,
              HasSubstr("the file has become shorter since it was opened"));
}

TEST_F(RecordFiles, OtherFilesAreRefused) {
  EXPECT_THAT(error_of_reading("hello, I am a text").message, HasSubstr("is not a record file"));
  EXPECT_THAT(error_of_reading("version https://git-lfs.github.com/spec/v1\n").message,
              HasSubstr("git lfs pull"));
  EXPECT_EQ(error_of([&] { (void)RecordFile(files_.path()); }).code, ErrorCode::kInvalidArgument);
  EXPECT_EQ(error_of([&] { (void)RecordFile(path() + "x"); }).code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace unisono::datasets
