#include "unisono/store/file_store.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <csignal>
#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <sstream>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/store/file_log.h"
#include "unisono/store/store_map.h"
#include "unisono/store/testing/stores.h"

#include "support/temporary_folder.h"

namespace unisono::store {
namespace {

using test::read_file;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using testing::soon;

namespace fs = std::filesystem;

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Longer than the record that replaces the old record. The rest of the old record must not remain.
std::string a_record() {
  return text_of(
      encode_log_record({{.kind = StepKind::kSet, .key = "c", .value = std::string(200, 'x')}}));
}

// Returns the error of `call` as "CODE: message".
std::string error_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return std::string(to_string(error.code())) + ": " + error.what();
  }
  return "no error";
}

class FileStoreTest : public ::testing::Test {
 protected:
  [[nodiscard]] std::unique_ptr<FileStore> open() const {
    return std::make_unique<FileStore>(
        FileStoreOptions{.path = path_, .io_timeout = std::chrono::seconds(30)}, soon());
  }

  // Creates a store's file with two values that no process has open.
  std::string make_file() const {
    const auto store = open();
    store->set("a", "one");
    store->set("b", "two");
    return read_file(path_);
  }

  void write(const std::string& bytes) const { (void)folder_.write("store", bytes); }

  void append(const std::string& bytes) const { write(read_file(path_) + bytes); }

  test::TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/store";
};

TEST_F(FileStoreTest, ValuesStayInTheFile) {
  {
    const auto store = open();
    store->set("k", "v");
    store->queue_push("q", "1");
  }
  const auto again = open();
  EXPECT_EQ(again->get("k", soon()), "v");
  EXPECT_EQ(again->try_queue_pop("q"), "1");
  struct stat status{};
  ASSERT_EQ(::stat(path_.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600U);
}

TEST_F(FileStoreTest, AnEmptyFileBecomesAStore) {
  write("");
  open()->set("k", "v");
  EXPECT_EQ(open()->get("k", soon()), "v");
}

TEST_F(FileStoreTest, AHeaderWhoseWriterWasKilledIsWrittenAnew) {
  const std::string header = make_file().substr(0, kLogHeaderBytes);
  for (std::size_t n_bytes = 0; n_bytes < header.size(); ++n_bytes) {
    write(header.substr(0, n_bytes));
    open()->set("k", "v");
    EXPECT_EQ(open()->get("k", soon()), "v") << n_bytes;
  }
}

TEST_F(FileStoreTest, ARecordWithoutItsEndIsNotThereAndTheNextWriterCutsItOff) {
  const std::string whole = make_file();
  const std::string record = a_record();
  for (std::size_t n_bytes = 0; n_bytes < record.size(); ++n_bytes) {
    write(whole);
    const auto before = open();
    EXPECT_EQ(before->num_keys(), 2);
    append(record.substr(0, n_bytes));
    const auto after = open();
    for (FileStore* store : {before.get(), after.get()}) {
      EXPECT_THAT(store->list_keys(), ElementsAre("a", "b")) << n_bytes;
    }
    EXPECT_EQ(read_file(path_).size(), whole.size() + n_bytes) << "readers change nothing";
    before->set("d", "4");
    EXPECT_EQ(after->get("d", soon()), "4") << n_bytes;
    EXPECT_THAT(open()->list_keys(), ElementsAre("a", "b", "d")) << n_bytes;
  }
}

TEST_F(FileStoreTest, ARecordThatWasDamagedIsAnErrorAndEndsTheStore) {
  const std::string whole = make_file() + a_record();
  for (std::size_t at = kLogHeaderBytes; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x20);
    write(damaged);
    const auto store = open();
    EXPECT_THAT(error_of([&] { (void)store->num_keys(); }),
                AllOf(HasSubstr("CorruptData: store " + path_), HasSubstr("start again")))
        << at;
    EXPECT_THAT(error_of([&] { store->set("k", "v"); }),
                AllOf(HasSubstr("Closed: "), HasSubstr("damaged")));
    EXPECT_EQ(read_file(path_), damaged);
  }
}

TEST_F(FileStoreTest, AFileThatIsNoStoreStaysAsItIs) {
  const std::string header = make_file().substr(0, kLogHeaderBytes);
  std::string damaged = header;
  damaged[20] = static_cast<char>(damaged[20] ^ 1);
  for (const std::string& junk :
       {std::string("x"), std::string(5000, 'x'), std::string(40, '\0'), damaged}) {
    write(junk);
    EXPECT_THAT(error_of([&] { (void)open(); }),
                AllOf(HasSubstr("CorruptData: store " + path_), HasSubstr("not a store's")));
    EXPECT_EQ(read_file(path_), junk);
  }
}

TEST_F(FileStoreTest, AFileOfAnotherVersionStaysAsItIs) {
  std::string other = make_file();
  other[8] = 2;
  write(other);
  EXPECT_THAT(error_of([&] { (void)open(); }),
              AllOf(HasSubstr("Incompatible: store " + path_), HasSubstr("same version")));
  EXPECT_EQ(read_file(path_), other);
}

TEST_F(FileStoreTest, WhatIsNoFileIsRefused) {
  path_ = folder_.path() + "/nowhere/store";
  EXPECT_THAT(error_of([&] { (void)open(); }),
              AllOf(HasSubstr("NotFound: store " + path_), HasSubstr("make it first")));
  path_ = folder_.path();
  EXPECT_THAT(error_of([&] { (void)open(); }), HasSubstr("InvalidArgument: store " + path_));
  path_ = folder_.path() + "/pipe";
  ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
  EXPECT_THAT(error_of([&] { (void)open(); }), HasSubstr("is not a regular file"));
}

TEST_F(FileStoreTest, AFileThatIsDeletedReplacedOrCutIsAnErrorAndEndsTheStore) {
  const std::vector<std::pair<const char*, std::function<void()>>> ways{
      {"deleted", [&] { fs::remove(path_); }},
      {"renamed", [&] { fs::rename(path_, path_ + "-"); }},
      {"deleted and made anew",
       [&] {
         fs::remove(path_);
         open()->set("k", "another job's");
       }},
      {"replaced",
       [&] {
         (void)folder_.write("other", read_file(path_));
         fs::rename(folder_.path() + "/other", path_);
       }},
      {"cut", [&] { fs::resize_file(path_, kLogHeaderBytes); }},
      {"emptied", [&] { fs::resize_file(path_, 0); }},
      {"overwritten", [&] { write(std::string(1000, 'x')); }},
      {"emptied and made anew, as long as before", [&] {
         fs::resize_file(path_, 0);
         open()->set("k", "w");
       }}};
  for (const auto& [name, way] : ways) {
    fs::remove(path_);
    const auto store = open();
    store->set("k", "v");
    std::thread waiting([&] { EXPECT_THROW((void)store->get("never", soon()), Error) << name; });
    way();
    waiting.join();
    EXPECT_THAT(error_of([&] { store->set("k", "w"); }),
                AllOf(HasSubstr("Closed: store " + path_), HasSubstr("start again")))
        << name;
  }
}

TEST_F(FileStoreTest, AFullDiskIsAnErrorAndNothingIsLost) {
  const auto store = open();
  const auto other = open();
  store->set("k", "v");
  const std::size_t n_before = read_file(path_).size();
  // The file can't grow, as on a full disk: a write stops in the middle of the record.
  struct sigaction ignored{};
  struct sigaction old_action{};
  ignored.sa_handler = SIG_IGN;
  ASSERT_EQ(::sigaction(SIGXFSZ, &ignored, &old_action), 0);
  rlimit old_limit{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old_limit), 0);
  const rlimit tight{.rlim_cur = n_before + 50, .rlim_max = old_limit.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const std::string error = error_of([&] { store->set("large", std::string(1000, 'x')); });
  const std::string value = other->get("k", soon());
  const std::int64_t n_keys = other->num_keys();
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &old_limit), 0);
  ASSERT_EQ(::sigaction(SIGXFSZ, &old_action, nullptr), 0);

  EXPECT_THAT(error, AllOf(HasSubstr("System: store " + path_), HasSubstr("File too large")));
  EXPECT_EQ(value, "v");
  EXPECT_EQ(n_keys, 1);
  EXPECT_EQ(read_file(path_).size(), n_before);
  store->set("large", "x");
  EXPECT_EQ(other->get("large", soon()), "x");
}

TEST_F(FileStoreTest, KeepsToItsLimitInAll) {
  FileStore store({.path = path_, .limits = {.max_store_bytes = 10'000}}, soon());
  store.set("k", std::string(9'000, 'x'));
  EXPECT_THAT(error_of([&] { store.set("k", std::string(1'000, 'x')); }),
              AllOf(HasSubstr("InvalidArgument: store " + path_), HasSubstr("at most 10000")));
  store.set("k", "y");
  EXPECT_EQ(store.get("k", soon()), "y");
}

TEST_F(FileStoreTest, RemoveDeletesItsFileOnly) {
  const auto store = open();
  const auto other = open();
  store->remove();
  EXPECT_FALSE(fs::exists(path_));
  EXPECT_THAT(error_of([&] { store->set("k", "v"); }), HasSubstr("Closed: "));
  EXPECT_THAT(error_of([&] { other->set("k", "v"); }), HasSubstr("PeerLost: "));
  open()->set("k", "next job's");
  other->remove();
  EXPECT_EQ(open()->get("k", soon()), "next job's");
}

// Returns the number of bytes that this thread has read from files.
std::uint64_t n_bytes_read() {
  std::istringstream stats(read_file("/proc/thread-self/io"));
  std::string name;
  std::uint64_t n_bytes = 0;
  stats >> name >> n_bytes;
  EXPECT_EQ(name, "rchar:");
  return n_bytes;
}

TEST_F(FileStoreTest, TheLastToLeaveWithoutOthersNumbersDeletesTheFile) {
  const auto anna = open();
  const auto bert = open();
  EXPECT_TRUE(anna->claim(1));
  EXPECT_TRUE(bert->claim(2));
  EXPECT_FALSE(bert->claim(1));
  EXPECT_TRUE(bert->is_claimed(1));
  EXPECT_FALSE(anna->leave());
  EXPECT_TRUE(std::filesystem::exists(path_));
  EXPECT_THROW(anna->set("a", "1"), Error);
  EXPECT_FALSE(bert->is_claimed(1));
  bert->set("b", "1");
  EXPECT_TRUE(bert->leave());
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(FileStoreTest, ARelativePathHoldsWhenTheProcessGoesElsewhere) {
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(std::filesystem::path(path_).parent_path());
  FileStore store({.path = std::filesystem::path(path_).filename()}, soon());
  std::filesystem::current_path(before);
  store.set("a", "1");
  EXPECT_EQ(store.try_get("a"), "1");
}

TEST_F(FileStoreTest, CallsReadWhatIsNew) {
  const auto store = open();
  const auto other = open();
  other->set("large", std::string(4 << 20, 'x'));
  EXPECT_EQ(store->num_keys(), 1);
  const std::uint64_t n_before = n_bytes_read();
  for (int i = 0; i < 100; ++i) {
    other->add("n", 1);
    EXPECT_EQ(store->num_keys(), 2);
  }
  EXPECT_LT(n_bytes_read() - n_before, 200U * 200U);
}

TEST_F(FileStoreTest, AWaitTakesLittleTimeOfTheCore) {
  const auto store = open();
  timespec before{};
  timespec after{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
  EXPECT_THROW((void)store->get("never", Deadline::after(std::chrono::milliseconds(400))), Error);
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
  const auto ms =
      (after.tv_sec - before.tv_sec) * 1000 + (after.tv_nsec - before.tv_nsec) / 1'000'000;
  EXPECT_LT(ms, 60);
}

TEST_F(FileStoreTest, ProgramsThatAreStartedDoNotInheritTheFile) {
  const auto store = open();
  const std::vector<int> descriptors = testing::descriptors_of(path_);
  ASSERT_THAT(descriptors, SizeIs(1));
  EXPECT_NE(::fcntl(descriptors.front(), F_GETFD) & FD_CLOEXEC, 0);
}

}  // namespace
}  // namespace unisono::store
