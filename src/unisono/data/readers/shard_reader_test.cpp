#include "unisono/data/readers/shard_reader.h"

#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/testing/idx_writer.h"
#include "unisono/data/testing/tar_writer.h"

#include "support/temporary_folder.h"

namespace unisono {
namespace {

using data::testing::CaughtError;
using data::testing::error_of;
using data::testing::gzip;
using data::testing::tar_end;
using data::testing::tar_entry;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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
}  // namespace unisono
