#include "unisono/torch/atomic_file.h"

#include <sys/resource.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class AtomicFileTest : public ::testing::Test {
 protected:
  AtomicFileTest() {
    std::string name = ::testing::TempDir() + "atomic_file_XXXXXX";
    folder_ = ::mkdtemp(name.data());
  }

  ~AtomicFileTest() override { fs::remove_all(folder_); }

  AtomicFileTest(const AtomicFileTest&) = delete;
  AtomicFileTest& operator=(const AtomicFileTest&) = delete;
  AtomicFileTest(AtomicFileTest&&) = delete;
  AtomicFileTest& operator=(AtomicFileTest&&) = delete;

  [[nodiscard]] const fs::path& folder() const { return folder_; }

  [[nodiscard]] std::vector<std::string> names() const {
    std::vector<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) {
      names.push_back(entry.path().filename().string());
    }
    return names;
  }

 private:
  fs::path folder_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string contents(const fs::path& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

// Files may not grow beyond some bytes while this lives: a full disk that needs no privileges.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    ::getrlimit(RLIMIT_FSIZE, &old_limit_);
    const rlimit limit{bytes, old_limit_.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FileSizeLimit() {
    ::setrlimit(RLIMIT_FSIZE, &old_limit_);
    std::signal(SIGXFSZ, old_handler_);
  }

  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  FileSizeLimit(FileSizeLimit&&) = delete;
  FileSizeLimit& operator=(FileSizeLimit&&) = delete;

 private:
  void (*old_handler_)(int);
  rlimit old_limit_{};
};

TEST_F(AtomicFileTest, AppearsAtCommitAndReplacesTheOldFile) {
  const fs::path path = folder() / "model.pt";
  std::ofstream(path) << "old";
  AtomicFile file(path);
  file.write(bytes_of("new "));
  file.write(bytes_of("text"));
  EXPECT_EQ(contents(path), "old");
  file.commit();
  EXPECT_EQ(contents(path), "new text");
  EXPECT_THAT(names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  {
    AtomicFile file(folder() / "model.pt");
    file.write(bytes_of("half"));
  }
  EXPECT_THAT(names(), ::testing::IsEmpty());
}

TEST_F(AtomicFileTest, AFullDiskIsAnErrorAndTheOldFileStays) {
  const fs::path path = folder() / "model.pt";
  std::ofstream(path) << "old";
  {
    const FileSizeLimit limit(4096);
    AtomicFile file(path);
    file.write(bytes_of(std::string(8192, 'x')));
    file.write(bytes_of("more"));
    try {
      file.commit();
      FAIL() << "half a file must not be committed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_THAT(error.what(), HasSubstr("save " + path.string() + ": can't write it: "));
    }
  }
  EXPECT_EQ(contents(path), "old");
  EXPECT_THAT(names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, AMissingFolderIsNamed) {
  try {
    const AtomicFile file(folder() / "no" / "model.pt");
    FAIL() << "there is no such folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr("create the folder " + (folder() / "no").string()));
  }
}

TEST_F(AtomicFileTest, AFolderThatCannotBeWrittenIsAnError) {
  EXPECT_THROW(AtomicFile("/proc/self/model.pt"), Error);
}

TEST_F(AtomicFileTest, AFolderIsNotReplaced) {
  const fs::path path = folder() / "model.pt";
  fs::create_directory(path);
  {
    AtomicFile file(path);
    EXPECT_THROW(file.commit(), Error);
  }
  EXPECT_TRUE(fs::is_directory(path));
  EXPECT_THAT(names(), ::testing::ElementsAre("model.pt"));
}

}  // namespace
}  // namespace unisono
