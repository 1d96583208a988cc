#include "unisono/data/readers/tar_reader.h"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/testing/real_data.h"
#include "unisono/data/testing/tar_writer.h"

#include "support/temporary_folder.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using data::testing::gzip;
using data::testing::pax_record;
using data::testing::some_bytes;
using data::testing::tar_end;
using data::testing::tar_entry;
using data::testing::tar_header;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct NamedContent {
  std::string name;
  std::string content;

  friend bool operator==(const NamedContent&, const NamedContent&) = default;
};

class Tar : public ::testing::Test {
 protected:
  std::vector<NamedContent> read(const std::string& bytes) {
    path_ = files_.write("file.tar", bytes);
    TarReader reader(path_);
    std::vector<NamedContent> files;
    while (const std::optional<TarEntry> entry = reader.next()) {
      const std::vector<std::byte> content = reader.content();
      EXPECT_EQ(content.size(), entry->n_bytes);
      files.push_back({.name = entry->name,
                       .content = {reinterpret_cast<const char*>(content.data()), content.size()}});
    }
    EXPECT_EQ(reader.next(), std::nullopt);
    return files;
  }

  std::string complaint(const std::string& bytes) {
    const CaughtError error = error_of([&] { (void)read(bytes); });
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << error.message;
    return error.message;
  }

  test::TemporaryFolder files_;
  std::string path_;
};

TEST_F(Tar, FilesInTheirOrderPlainAndGzip) {
  const std::string large = some_bytes(100'001);
  const std::string bytes =
      tar_entry("a", "first") + tar_entry("dir/b", "") + tar_entry("c", large) + tar_end();
  const std::vector<NamedContent> expected{{"a", "first"}, {"dir/b", ""}, {"c", large}};
  EXPECT_EQ(read(bytes), expected);
  EXPECT_EQ(read(gzip(bytes)), expected);
  EXPECT_THAT(read(tar_end()), IsEmpty());
}

TEST_F(Tar, WhatIsNoRegularFileIsSkipped) {
  EXPECT_EQ(read(tar_entry("dir/", "", '5') + tar_header("link", "00000001000", '2') +
                 tar_entry("odd", "of an unknown type", 'Z') + tar_entry("a", "x") +
                 tar_entry("old", "y", '\0') + tar_end()),
            (std::vector<NamedContent>{{"a", "x"}, {"old", "y"}}));
}

TEST_F(Tar, ContentThatIsNotReadIsSkipped) {
  TarReader reader(
      files_.write("file.tar", tar_entry("a", some_bytes(1000)) + tar_entry("b", "x") + tar_end()));
  EXPECT_EQ(reader.next()->offset, 0U);
  const std::optional<TarEntry> second = reader.next();
  ASSERT_TRUE(second);
  EXPECT_EQ(second->name, "b");
  EXPECT_EQ(second->offset, 1536U);
  EXPECT_EQ(reader.content().size(), 1U);
  EXPECT_THAT(error_of([&] { (void)reader.content(); }).message, HasSubstr("or twice"));
}

TEST_F(Tar, LongNamesOfAllThreeKinds) {
  const std::string name(300, 'n');
  EXPECT_EQ(read(tar_entry("file", "x", '0', "pre/fix") +
                 tar_entry("././@LongLink", name + std::string(1, '\0'), 'L') +
                 tar_entry("././@LongLink", "target", 'K') + tar_entry("short", "y") +
                 tar_entry("pax", pax_record("mtime", "1.5") + pax_record("path", name), 'x') +
                 tar_entry("short", "z") + tar_entry("short", "next") + tar_end()),
            (std::vector<NamedContent>{
                {"pre/fix/file", "x"}, {name, "y"}, {name, "z"}, {"short", "next"}}));
}

TEST_F(Tar, SizesOfAllThreeKinds) {
  const std::string padding(509, '\0');
  const std::string binary = std::string("\x80", 1) + std::string(10, '\0') + "\x03";
  EXPECT_EQ(
      read(tar_header("binary", binary) + "abc" + padding + tar_header("spaces", "        3 ") +
           "def" + padding + tar_entry("pax", pax_record("size", "3"), 'x') +
           tar_header("of pax", "00000000000") + "ghi" + padding + tar_end()),
      (std::vector<NamedContent>{{"binary", "abc"}, {"spaces", "def"}, {"of pax", "ghi"}}));
}

TEST_F(Tar, AGlobalPaxHeaderIsOfNoFile) {
  EXPECT_EQ(read(tar_entry("pax", pax_record("path", "no"), 'g') + tar_entry("a", "x") + tar_end()),
            (std::vector<NamedContent>{{"a", "x"}}));
}

TEST_F(Tar, EveryTruncationIsNoticed) {
  const std::string bytes = tar_entry("a", "first") + tar_entry("b", some_bytes(600));
  for (std::size_t n_left = 0; n_left <= bytes.size(); n_left += 64) {
    EXPECT_THAT(complaint(bytes.substr(0, n_left)), HasSubstr("the archive ends early")) << n_left;
  }
  EXPECT_EQ(complaint(bytes),
            path_ +
                ": header 2, at offset 2560: the archive ends early: 0 of 512 bytes are there, "
                "but no blocks of zeros to mark its end; fetch it again");
}

TEST_F(Tar, EveryFlippedBitOfAHeaderIsNoticed) {
  const std::string bytes = tar_entry("a", "") + tar_entry("b", "x") + tar_end();
  for (std::size_t at = 512; at < 1024; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    // Of the sum's own field the last byte is a space that nobody reads.
    if (at - 512 != 155) {
      EXPECT_THAT(complaint(damaged), HasSubstr("header 1, at offset 512: is damaged")) << at;
    }
  }
}

TEST_F(Tar, AbsurdSizesTakeNoMemory) {
  EXPECT_THAT(complaint(tar_header("a", "77777777777") + tar_end()),
              HasSubstr("header 1, at offset 0: the archive ends early: 1024 of 8589934591 bytes"));
  EXPECT_THAT(complaint(tar_header("a", std::string(12, '\xff'))), HasSubstr("header 0"));
  // 3, if it had no more than 64 bits.
  const std::string beyond = std::string("\x80\x01", 2) + std::string(9, '\0') + "\x03";
  EXPECT_THAT(complaint(tar_header("a", beyond)), HasSubstr("header 0"));
  EXPECT_THAT(complaint(tar_entry("pax", pax_record("size", "99999999999999999999"), 'x')),
              HasSubstr("its pax records are damaged"));
  EXPECT_THAT(complaint(tar_entry("pax", pax_record("size", "18446744073709551615"), 'x')),
              HasSubstr("its pax records are damaged"));
  EXPECT_THAT(complaint(tar_header("name", "00077777777", 'L')),
              HasSubstr("a name or pax header of 16777215 bytes; up to 1048576 are possible"));
}

TEST_F(Tar, DamagedPaxRecordsAreRefused) {
  for (const std::string records :
       {"path=x\n", "9 path=x", "99 path=x\n", "8 pathx\n", "3 \n", "x"}) {
    EXPECT_THAT(complaint(tar_entry("pax", records, 'x') + tar_end()),
                HasSubstr("its pax records are damaged"))
        << records;
  }
}

TEST_F(Tar, SparseFilesAreRefused) {
  EXPECT_THAT(complaint(tar_entry("a", "x", 'S')), HasSubstr("sparse"));
  EXPECT_THAT(
      complaint(tar_entry("pax", pax_record("GNU.sparse.major", "1"), 'x') + tar_entry("a", "x")),
      HasSubstr("sparse"));
}

TEST_F(Tar, OtherFilesAreRefused) {
  EXPECT_THAT(complaint(std::string(512, 'x')), HasSubstr("is no header of a tar archive"));
  EXPECT_THAT(complaint(""), HasSubstr("ends early: 0 of 512"));
}

TEST(TarRealFiles, RecordingsOfDigits) {
  const std::string name = "fsdd_recordings.tar.gz";
  if (!data::testing::has_real_data(name)) {
    GTEST_SKIP() << data::testing::why_skipped(name);
  }
  TarReader reader(data::testing::real_data_path(name));
  std::int64_t n_files = 0;
  while (const std::optional<TarEntry> entry = reader.next()) {
    ASSERT_THAT(entry->name, ::testing::EndsWith(".wav"));
    const std::vector<std::byte> content = reader.content();
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(content.data()), 4), "RIFF");
    ++n_files;
  }
  EXPECT_EQ(n_files, 3000);
}

}  // namespace
}  // namespace unisono
