#include "unisono/base/atomic_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"

namespace unisono {
namespace {

using test::read_file;
using ::testing::HasSubstr;
using ::testing::Not;

class AtomicFileTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::string path(const std::string& name = "model.pt") const {
    return folder_.path() + "/" + name;
  }

  test::TemporaryFolder folder_;
};

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
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
  (void)folder_.write("model.pt", "old");
  AtomicFile file(path());
  file.write(bytes_of("new "));
  file.write(bytes_of("text"));
  EXPECT_EQ(read_file(path()), "old");
  file.commit();
  EXPECT_EQ(read_file(path()), "new text");
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, WithoutCommitNothingIsLeft) {
  {
    AtomicFile file(path());
    file.write(bytes_of("half"));
  }
  EXPECT_THAT(folder_.names(), ::testing::IsEmpty());
}

TEST_F(AtomicFileTest, AFullDiskIsAnErrorAndTheOldFileStays) {
  (void)folder_.write("model.pt", "old");
  {
    const FileSizeLimit limit(4096);
    AtomicFile file(path());
    file.write(bytes_of(std::string(8192, 'x')));
    file.write(bytes_of("more"));
    try {
      file.commit();
      FAIL() << "half a file must not be committed";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kSystem);
      EXPECT_THAT(error.what(), HasSubstr("save " + path() + ": can't write it: "));
    }
  }
  EXPECT_EQ(read_file(path()), "old");
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, AMissingFolderIsNamed) {
  try {
    const AtomicFile file(path("no/model.pt"));
    FAIL() << "there is no such folder";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(), HasSubstr("create the folder " + path("no")));
  }
}

TEST_F(AtomicFileTest, AFolderThatTakesNoFilesIsNotSaidToBeMissing) {
  try {
    const AtomicFile file("/proc/model.pt");
    FAIL() << "no file can be created there";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("save /proc/model.pt: can't create a file in /proc"));
    EXPECT_THAT(error.what(), Not(HasSubstr("create the folder")));
  }
}

TEST_F(AtomicFileTest, AFolderIsNotReplaced) {
  std::filesystem::create_directory(path());
  try {
    const AtomicFile file(path());
    FAIL() << "a folder has that name";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.what(), HasSubstr("'" + path() + "': it is a folder"));
  }
  EXPECT_THAT(folder_.names(), ::testing::ElementsAre("model.pt"));
}

TEST_F(AtomicFileTest, APipeIsNotReplaced) {
  ASSERT_EQ(::mkfifo(path().c_str(), 0600), 0);
  EXPECT_THROW(AtomicFile{path()}, Error);
  EXPECT_TRUE(std::filesystem::is_fifo(path()));
}

}  // namespace
}  // namespace unisono
