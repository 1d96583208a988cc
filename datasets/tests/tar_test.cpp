#include "unisono/datasets/tar.h"

#include <cstddef>
#include <cstdint>
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
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::pax_record;
using testing::some_bytes;
using testing::tar_end;
using testing::tar_entry;
using testing::tar_header;

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
                "but not the 2 blocks of zeros that mark its end; fetch it again");
}

TEST_F(Tar, EveryFlippedBitOfAHeaderIsNoticed) {
  const std::string bytes = tar_entry("a", "") + tar_entry("b", "x") + tar_end();
  for (std::size_t at = 512; at < 1024; ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    // The reader ignores the last byte of the field of the sum.
    if (at - 512 != 155) {
      EXPECT_THAT(complaint(damaged), HasSubstr("header 1, at offset 512: is damaged")) << at;
    }
  }
}

TEST_F(Tar, AbsurdSizesTakeNoMemory) {
  EXPECT_THAT(complaint(tar_header("a", "77777777777") + tar_end()),
              HasSubstr("header 1, at offset 0: the archive ends early: 1024 of 8589934591 bytes"));
  EXPECT_THAT(complaint(tar_header("a", std::string(12, '\xff'))), HasSubstr("header 0"));
  // The value is 3 modulo 2^64.
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

TEST_F(Tar, JoinedArchivesAreReadToTheirEnd) {
  // Programs fill the last record of 20 blocks with zeros.
  const std::string first = tar_entry("a", "first") + tar_end() + std::string(8 * 1024, '\0');
  const std::string second = tar_entry("b", some_bytes(600)) + tar_end();
  const std::string third = tar_entry("c", "") + tar_entry("d", "last") + tar_end();
  const std::vector<NamedContent> two{{"a", "first"}, {"b", some_bytes(600)}};
  const std::vector<NamedContent> three{
      {"a", "first"}, {"b", some_bytes(600)}, {"c", ""}, {"d", "last"}};
  EXPECT_EQ(read(first + second), two);
  EXPECT_EQ(read(first + second + third), three);
  EXPECT_EQ(read(gzip(first) + gzip(second) + gzip(third)), three);
  EXPECT_EQ(read(tar_end() + first + second), two);
}

TEST_F(Tar, BytesBehindTheEndMarkAreAnArchiveOrAnError) {
  const std::string whole = tar_entry("a", "first") + tar_end();
  EXPECT_EQ(read(whole + std::string(100, '\0')).size(), 1U);
  for (const std::string& rest : {std::string(512, 'x'), std::string("x")}) {
    EXPECT_THAT(complaint(whole + rest),
                HasSubstr("header 1, at offset 2048: follows the mark of the archive's end"));
  }
  EXPECT_THAT(complaint(whole + tar_entry("b", "second")),
              HasSubstr("the archive ends early: 0 of 512"));
}

TEST_F(Tar, ALoneBlockOfZerosIsNoEnd) {
  const std::string zeros(512, '\0');
  EXPECT_THAT(complaint(tar_entry("a", "x") + zeros + tar_entry("b", "y") + tar_end()),
              HasSubstr("header 1, at offset 1536: a lone block of zeros is before it"));
  EXPECT_THAT(complaint(zeros + tar_entry("b", "y") + tar_end()), HasSubstr("a lone block"));
  EXPECT_THAT(complaint(tar_entry("a", "x") + zeros), HasSubstr("the archive ends early"));
}

TEST_F(Tar, AHeaderWithoutItsEntryIsNamed) {
  EXPECT_THAT(complaint(tar_entry("pax", pax_record("path", "a"), 'x') + tar_end()),
              HasSubstr("header 1, at offset 2048: the entry is missing"));
}

// A file of 2000 bytes with 3 stored bytes at 600 and 2 at the end.
const std::string kSparseWhole = std::string(600, '\0') + "abc" + std::string(1395, '\0') + "de";

std::string pax_entry(const std::vector<std::string>& records, const std::string& content) {
  std::string text;
  for (const std::string& record : records) {
    const std::size_t equals = record.find('=');
    text += pax_record(record.substr(0, equals), record.substr(equals + 1));
  }
  return tar_entry("pax", text, 'x') + tar_entry("GNUSparseFile.0/a", content);
}

std::string sparse_of_macos(const std::string& map, const std::string& content) {
  return pax_entry({"path=GNUSparseFile.0/a",
                    "GNU.sparse.major=1",
                    "GNU.sparse.minor=0",
                    "GNU.sparse.name=a",
                    "GNU.sparse.realsize=2000"},
                   map + std::string(512 - map.size() % 512, '\0') + content);
}

// The header has all pieces but the last, which a further block has.
std::string sparse_of_gnu() {
  std::string header = tar_header("a", "00000000005", 'S').replace(483, 11, "00000003720");
  const auto piece = [](const std::string& offset, const std::string& n_bytes) {
    return offset + std::string(1, '\0') + n_bytes + std::string(1, '\0');
  };
  const std::string empty = piece("00000001133", "00000000000");
  header.replace(386, 24, piece("00000001130", "00000000003"));
  header.replace(410, 24, empty).replace(434, 24, empty).replace(458, 24, empty);
  header[482] = 1;
  std::string more(512, '\0');
  more.replace(0, 24, piece("00000003716", "00000000002"));
  return datasets::testing::with_sum(header) + more + "abcde" + std::string(507, '\0');
}

TEST_F(Tar, SparseFilesOfAllFormatsAreWhole) {
  const std::string next = tar_entry("b", "next") + tar_end();
  const std::vector<NamedContent> expected{{"a", kSparseWhole}, {"b", "next"}};
  EXPECT_EQ(read(sparse_of_macos("3\n600\n3\n1998\n2\n2000\n0\n", "abcde") + next), expected);
  EXPECT_EQ(read(sparse_of_gnu() + next), expected);
  EXPECT_EQ(read(pax_entry({"GNU.sparse.size=2000",
                            "GNU.sparse.numblocks=2",
                            "GNU.sparse.name=a",
                            "GNU.sparse.map=600,3,1998,2"},
                           "abcde") +
                 next),
            expected);
  EXPECT_EQ(read(pax_entry({"GNU.sparse.size=2000",
                            "path=a",
                            "GNU.sparse.offset=600",
                            "GNU.sparse.numbytes=3",
                            "GNU.sparse.offset=1998",
                            "GNU.sparse.numbytes=2"},
                           "abcde") +
                 next),
            std::vector<NamedContent>({{"a", kSparseWhole}, {"b", "next"}}));
  TarReader reader(files_.write("file.tar", sparse_of_macos("1\n7\n5\n", "abcde") + next));
  EXPECT_EQ(reader.next()->n_bytes, 2000U);
  EXPECT_EQ(reader.next()->name, "b");
}

TEST_F(Tar, DamagedListsOfPiecesAreRefused) {
  for (const std::string map : {"2\n600\n3\n1998\n3\n",  // After the end.
                                "2\n1998\n2\n600\n3\n",  // Out of order.
                                "2\n600\n3\n602\n2\n",   // Overlapping.
                                "1\n600\n3\n",           // Less than the stored bytes.
                                "2\n600\n3\n1998\n",     // Half a piece.
                                "x\n600\n3\n1998\n2\n",
                                "2\n600\nx\n1998\n2\n",
                                "99999999\n600\n3\n"}) {
    EXPECT_THAT(complaint(sparse_of_macos(map, "abcde") + tar_end()),
                HasSubstr("its list of the pieces of a sparse file is damaged"))
        << map;
  }
  EXPECT_THAT(complaint(pax_entry({"GNU.sparse.major=1"}, "x")),
              HasSubstr("its pax records are damaged"));
  const std::string huge = pax_entry({"GNU.sparse.size=9999999999", "GNU.sparse.map=0,1"}, "x");
  EXPECT_THAT(complaint(huge + tar_end()), HasSubstr("holes of up to 268435456 bytes can be read"));
}

TEST_F(Tar, OtherFilesAreRefused) {
  EXPECT_THAT(complaint(std::string(512, 'x')), HasSubstr("is not a header of a tar archive"));
  EXPECT_THAT(complaint(""), HasSubstr("ends early: 0 of 512"));
}

TEST(TarRealFiles, RecordingsOfDigits) {
  const std::string name = "fsdd_recordings.tar.gz";
  if (!datasets::testing::has_real_data(name)) {
    GTEST_SKIP() << datasets::testing::why_skipped(name);
  }
  TarReader reader(datasets::testing::real_data_path(name));
  std::int64_t n_files = 0;
  while (const std::optional<TarEntry> entry = reader.next()) {
    ASSERT_THAT(entry->name, ::testing::EndsWith(".wav"));
    const std::vector<std::byte> content = reader.content();
    ASSERT_EQ(std::string(reinterpret_cast<const char*>(content.data()), 4), "RIFF");
    ++n_files;
  }
  EXPECT_EQ(n_files, 3000);
}

class Shards : public ::testing::Test {
 protected:
  // "KEY: PART=CONTENT ..." for each sample.
  static std::vector<std::string> read(const std::vector<std::string>& paths) {
    ShardReader reader(paths);
    std::vector<std::string> samples;
    while (const std::optional<ShardSample> sample = reader.next()) {
      std::string text = sample->key + ":";
      for (const auto& [part, content] : sample->parts) {
        text += " " + part + "=" +
                std::string(reinterpret_cast<const char*>(content.data()), content.size());
      }
      samples.push_back(text);
    }
    EXPECT_EQ(reader.next(), std::nullopt);
    return samples;
  }

  test::TemporaryFolder files_;
};

TEST_F(Shards, FilesOfOneNameAreASample) {
  const std::string first =
      files_.write("0.tar",
                   tar_entry("a/1.cls", "3") + tar_entry("a/1.jpg", "one") +
                       tar_entry("a/2.seg.png", "two") + tar_entry("a/2.cls", "4") + tar_end());
  const std::string second = files_.write(
      "1.tar.gz", gzip(tar_entry("a/2.cls", "5") + tar_entry("v1.0/3.cls", "6") + tar_end()));
  EXPECT_THAT(
      read({first, second}),
      ElementsAre("a/1: cls=3 jpg=one", "a/2: cls=4 seg.png=two", "a/2: cls=5", "v1.0/3: cls=6"));
}

TEST_F(Shards, FilesWithoutANameAndADotAreSkipped) {
  const std::string path =
      files_.write("0.tar",
                   tar_entry("README", "x") + tar_entry("1.cls", "1") +
                       tar_entry("dir/.hidden", "x") + tar_entry("1.txt", "one") + tar_end());
  EXPECT_THAT(read({path}), ElementsAre("1: cls=1 txt=one"));
  EXPECT_THAT(read({files_.write("1.tar", tar_end())}), IsEmpty());
  EXPECT_THAT(read({}), IsEmpty());
}

TEST_F(Shards, WhatSystemsLeaveBehindIsNoSample) {
  const std::string one = tar_entry("./cat/1.cls", "1") + tar_entry("./cat/1.jpg", "one");
  const std::string two = tar_entry("./cat/2.cls", "2");
  const std::vector<std::string> expected =
      read({files_.write("0.tar", one + two + tar_end()), files_.write("1.tar", tar_end())});
  ASSERT_EQ(expected.size(), 2U);
  const std::string first = files_.write(
      "0.tar",
      tar_entry("._cat", "x") + tar_entry("./cat/._1.cls", "x") + one.substr(0, 1024) +
          tar_entry("./cat/._1.jpg", "x") + one.substr(1024) +
          tar_entry("__MACOSX/cat/2.cls", "x") + tar_entry("cat/@eaDir/2.jpg/thumb.jpg", "x") +
          tar_entry(".ipynb_checkpoints/2-checkpoint.cls", "x") + tar_entry("README", "x") + two +
          tar_end());
  const std::string second = files_.write("1.tar", tar_entry(".DS_Store", "x") + tar_end());
  ::testing::internal::CaptureStderr();
  const std::vector<std::string> samples = read({first, second});
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_EQ(samples, expected);
  EXPECT_EQ(log,
            "[unisono data] " + first +
                " and 1 more: entries left out: 7 of systems and tools (._cat, ./cat/._1.cls, "
                "./cat/._1.jpg, ...), 1 of other types (README)\n");
}

TEST_F(Shards, ASampleSaysWhereItIsFrom) {
  const std::string path =
      files_.write("0.tar", tar_entry("0.cls", "0") + tar_entry("1.cls", "1") + tar_end());
  ShardReader reader({path});
  (void)reader.next();
  const std::optional<ShardSample> sample = reader.next();
  ASSERT_TRUE(sample);
  EXPECT_EQ(sample->shard, path);
  EXPECT_EQ(sample->offset, 1024U);
}

TEST_F(Shards, APartThatIsThereTwiceIsNamed) {
  const std::string path =
      files_.write("0.tar", tar_entry("1.cls", "1") + tar_entry("1.cls", "2") + tar_end());
  const CaughtError error = error_of([&] { (void)read({path}); });
  EXPECT_EQ(error.code, ErrorCode::kCorruptData);
  EXPECT_EQ(error.message,
            path + ": sample \"1\" has \"cls\" twice, the second time at offset 1024");
}

TEST_F(Shards, ATruncatedArchiveIsNoEnd) {
  const std::string path = files_.write("0.tar", tar_entry("1.cls", "1"));
  EXPECT_THAT(error_of([&] { (void)read({path}); }).message, HasSubstr("the archive ends early"));
  EXPECT_EQ(error_of([&] { (void)read({files_.path() + "/none.tar"}); }).code,
            ErrorCode::kNotFound);
}

}  // namespace
}  // namespace unisono::datasets
