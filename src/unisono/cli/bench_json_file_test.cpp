#include "unisono/cli/bench_json_file.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"

namespace unisono::cli::bench {
namespace {

namespace fs = std::filesystem;

class BenchJsonFile : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "results") const {
    return folder_.path() + "/" + name;
  }

  [[nodiscard]] std::string content() const {
    std::ifstream file(path());
    return {std::istreambuf_iterator<char>(file), {}};
  }

  [[nodiscard]] std::ptrdiff_t n_files() const {
    return std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator());
  }

  test::TemporaryFolder folder_;
};

TEST_F(BenchJsonFile, LooksAtThePathWithoutTouchingTheFile) {
  check_json_path(path());
  EXPECT_EQ(n_files(), 0);
  write_json(path(), "old\n");
  check_json_path(path());
  EXPECT_EQ(content(), "old\n");
  EXPECT_EQ(n_files(), 1);
}

TEST_F(BenchJsonFile, TakesThePlaceOfWhatWasThere) {
  write_json(path(), "old\nlines\n");
  write_json(path(), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_EQ(n_files(), 1);
}

TEST_F(BenchJsonFile, KeepsALinkThatLeadsToIt) {
  write_json(path(), "old\n");
  fs::create_symlink(path(), path("link"));
  write_json(path("link"), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(BenchJsonFile, KeepsALinkToAFileThatIsNotThereYet) {
  fs::create_symlink("results", path("link"));
  check_json_path(path("link"));
  write_json(path("link"), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_TRUE(fs::is_symlink(path("link")));
}

TEST_F(BenchJsonFile, KeepsThePermissions) {
  write_json(path(), "old\n");
  const auto own = fs::perms::owner_read | fs::perms::owner_write;
  fs::permissions(path(), own);
  write_json(path(), "new\n");
  EXPECT_EQ(content(), "new\n");
  EXPECT_EQ(fs::status(path()).permissions(), own);
}

TEST_F(BenchJsonFile, WritesToADeviceAsItIs) {
  check_json_path("/dev/null");
  write_json("/dev/null", "lines\n");
  EXPECT_TRUE(fs::is_character_file("/dev/null"));
}

TEST_F(BenchJsonFile, SaysWhatCannotBeWritten) {
  for (const std::string& wrong : {path("no_folder/results"), folder_.path()}) {
    try {
      check_json_path(wrong);
      ADD_FAILURE() << wrong;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_EQ(std::string(error.what()).find("bench: cannot write " + wrong + ": "), 0U);
    }
  }
  EXPECT_EQ(n_files(), 0);
}

}  // namespace
}  // namespace unisono::cli::bench
