#include "unisono/report/append_file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <cerrno>
#include <csignal>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::report {
namespace {

using test::read_file;
using test::TemporaryFolder;
using test::throws_error;
using ::testing::HasSubstr;

/// Limits the size of files during the object's lifetime. Data up to the limit is written, as on a
/// full disk.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(rlim_t n_bytes) : action_(std::signal(SIGXFSZ, SIG_IGN)) {
    EXPECT_EQ(::getrlimit(RLIMIT_FSIZE, &before_), 0);
    rlimit limit = before_;
    limit.rlim_cur = n_bytes;
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &limit), 0);
  }

  ~FileSizeLimit() {
    EXPECT_EQ(::setrlimit(RLIMIT_FSIZE, &before_), 0);
    std::signal(SIGXFSZ, action_);
  }

  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  FileSizeLimit(FileSizeLimit&&) = delete;
  FileSizeLimit& operator=(FileSizeLimit&&) = delete;

 private:
  rlimit before_{};
  void (*action_)(int);
};

AppendFile open_or_create(const std::string& path) {
  return {path, AppendFile::Open::kOrCreate, base::Logger("test")};
}

TEST(AppendFile, ARecordIsWholeOrNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/records";
  AppendFile file = open_or_create(path);
  // The captured stderr is also a file, and smaller.
  const std::string first = std::string(2000, 'x') + "\n";
  EXPECT_EQ(file.append(first), 0);
  ::testing::internal::CaptureStderr();
  {
    const FileSizeLimit limit(2005);
    EXPECT_EQ(file.append("second\n"), EFBIG);
    EXPECT_EQ(file.append("third, which is longer\n"), EFBIG);
  }
  EXPECT_EQ(read_file(path), first);
  EXPECT_EQ(file.append("fourth\n"), 0);
  EXPECT_EQ(file.append("fifth\n"), 0);
  EXPECT_EQ(read_file(path), first + "fourth\nfifth\n");
  EXPECT_EQ(::testing::internal::GetCapturedStderr(),
            "[unisono test] warning: can't write to " + path +
                ": File too large (errno 27); the training goes on, and what can't be written is "
                "left out\n[unisono test] " +
                path + " is written again; 2 records are left out\n");
}

TEST(AppendFile, TwoAppendToOneFile) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/records";
  AppendFile first = open_or_create(path);
  AppendFile second = open_or_create(path);
  EXPECT_EQ(first.append("1\n"), 0);
  EXPECT_EQ(second.append("2\n"), 0);
  EXPECT_EQ(first.append("3\n"), 0);
  EXPECT_EQ(read_file(path), "1\n2\n3\n");
}

TEST(AppendFile, NoticesAnIncompleteEnd) {
  const TemporaryFolder folder;
  EXPECT_FALSE(open_or_create(folder.path() + "/none").ends_otherwise('\n'));
  EXPECT_FALSE(open_or_create(folder.write("whole", "line\n")).ends_otherwise('\n'));
  EXPECT_TRUE(open_or_create(folder.write("torn", "line\nli")).ends_otherwise('\n'));
}

TEST(AppendFile, WhatCanNotBeAFileIsNamed) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/nowhere/records";
  EXPECT_THAT([&] { open_or_create(path); },
              throws_error(ErrorCode::kSystem,
                           "can't write to " + path,
                           "create the folder " + folder.path() + "/nowhere first"));
  EXPECT_THAT([&] { open_or_create(folder.path()); },
              throws_error(ErrorCode::kSystem, "directory"));
  const std::string pipe = folder.path() + "/pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_THAT([&] { open_or_create(pipe); },
              throws_error(ErrorCode::kInvalidArgument, pipe, "it is a pipe"));
  const std::string there = folder.write("there", "");
  EXPECT_THAT([&] { AppendFile(there, AppendFile::Open::kNew, base::Logger("test")); },
              throws_error(ErrorCode::kSystem, there, "exists"));
}

}  // namespace
}  // namespace unisono::report
