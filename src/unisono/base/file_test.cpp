#include "unisono/base/file.h"

#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>

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

// Limits the size of files during the object's lifetime: simulates a full disk without privileges.
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

std::string complaint(const std::string& content) {
  try {
    check_no_placeholder("sets/train.tar", std::as_bytes(std::span(content)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCorruptData);
    return error.what();
  }
  return "";
}

TEST(Placeholder, PointersAreNamedWithTheCommandThatFetchesTheFile) {
  EXPECT_EQ(complaint("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
            "sets/train.tar: is a pointer of Git LFS in place of the file; fetch the file in its "
            "repository: git lfs pull --include \"train.tar\"");
  EXPECT_THAT(complaint("/annex/objects/SHA256E-s12--ab.tar\n"),
              HasSubstr("git annex get \"train.tar\""));
}

TEST(Placeholder, PagesAreNamed) {
  for (const std::string page : {"<!DOCTYPE html>\n<title>Sign in</title>",
                                 "\xEF\xBB\xBF\r\n  <!doctype HTML>",
                                 "<HTML lang=\"en\">",
                                 "<?xml version=\"1.0\"?><Error><Code>AccessDenied</Code>"}) {
    EXPECT_THAT(complaint(page), HasSubstr("sets/train.tar: is a web page")) << page;
  }
  EXPECT_THAT(complaint("<html>\n<h1>403</h1>"), HasSubstr("\"<html>\\n<h1>403</h1>\""));
}

TEST(Placeholder, DataPass) {
  for (const std::string data :
       {"", "<", "<br />A film", "<htm", "version 2\n", "0\t<html>", "\x89PNG", "/annex"}) {
    EXPECT_EQ(complaint(data), "") << data;
  }
}

TEST(IsLeftBehind, NamesOfSystemsAndToolsAtAnyDepth) {
  for (const std::string name : {".DS_Store",
                                 "._x.png",
                                 ".ipynb_checkpoints",
                                 ".git",
                                 "__MACOSX",
                                 "@eaDir",
                                 "$RECYCLE.BIN",
                                 "$Recycle.Bin",
                                 "System Volume Information",
                                 "lost+found",
                                 "Thumbs.db",
                                 "thumbs.DB",
                                 "desktop.ini",
                                 "Icon\r",
                                 "__pycache__"}) {
    EXPECT_TRUE(is_left_behind(name)) << name;
    EXPECT_TRUE(is_left_behind("cat/" + name)) << name;
    EXPECT_TRUE(is_left_behind("./" + name + "/1.png")) << name;
  }
}

TEST(IsLeftBehind, NotNamesThatDataMayHave) {
  for (const std::string name : {"",
                                 ".",
                                 "..",
                                 "./cat/1.png",
                                 "../cat/1.png",
                                 "cat//1.png",
                                 "x._y",
                                 "a.git",
                                 "Icon",
                                 "thumbs.db.png",
                                 "lost",
                                 "_",
                                 "@home",
                                 "#1",
                                 "$"}) {
    EXPECT_FALSE(is_left_behind(name)) << name;
  }
}

std::string line_of(const LeftOut& left_out) {
  ::testing::internal::CaptureStderr();
  left_out.report(base::Logger("data"), "data folder \"flowers\"");
  return ::testing::internal::GetCapturedStderr();
}

TEST(LeftOut, OneLineCountsBothKinds) {
  LeftOut left_out;
  EXPECT_EQ(line_of(left_out), "");
  left_out.add("notes.txt");
  EXPECT_EQ(line_of(left_out),
            "[unisono data] data folder \"flowers\": entries left out: 1 of other types "
            "(notes.txt)\n");
  for (const std::string name : {"Icon\r", ".git", "cat/._1.png", "cat/.DS_Store"}) {
    left_out.add(name);
  }
  EXPECT_EQ(line_of(left_out),
            "[unisono data] data folder \"flowers\": entries left out: 4 of systems and tools "
            "(Icon\\r, .git, cat/._1.png, ...), 1 of other types (notes.txt)\n");
}

}  // namespace
}  // namespace unisono
