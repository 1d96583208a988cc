#include "unisono/peers/long_waits.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::peers {
namespace {

constexpr transport::WaitId kOperation{.group = 2, .sequence = 5};
constexpr transport::WaitId kReceive{.group = 2, .is_message = true, .sequence = 5};

TEST(BlockedThreads, KnowWhatAThreadWaitsForUntilItWaitsNoMore) {
  BlockedThreads waits;
  waits.begin(7, kOperation);
  EXPECT_EQ(waits.find(7), kOperation);
  EXPECT_EQ(waits.find(8), std::nullopt);
  EXPECT_NE(waits.waited_since(kOperation), std::nullopt);
  EXPECT_EQ(waits.waited_since(kReceive), std::nullopt);
  waits.end(7);
  EXPECT_EQ(waits.find(7), std::nullopt);
  EXPECT_EQ(waits.waited_since(kOperation), std::nullopt);
}

TEST(BlockedThreads, AThreadMayWaitForAnyOfSeveral) {
  BlockedThreads waits;
  waits.begin(7, kOperation);
  const auto since = waits.waited_since(kOperation);
  waits.begin(7, kReceive);
  EXPECT_EQ(waits.find(7), std::nullopt);
  EXPECT_EQ(waits.waited_since(kOperation), since);
  EXPECT_EQ(waits.waited_since(kReceive), since) << "it is the same wait";
  waits.begin(8, kReceive);
  waits.end(7);
  EXPECT_EQ(waits.waited_since(kOperation), std::nullopt);
  EXPECT_GT(waits.waited_since(kReceive), since);
}

TEST(BlockedThreads, ACallbackOfAnotherWorkMayBeCalledDuringAWait) {
  BlockedThreads waits;
  waits.add_callback({.group = 1, .sequence = 9});
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
  waits.remove_callback({.group = 1, .sequence = 9});
  EXPECT_FALSE(waits.has_callback_besides(kOperation));
  waits.add_callback(kReceive);
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
  EXPECT_FALSE(waits.has_callback_besides(kReceive));
}

TEST(BlockedThreads, ACallbackOfALaterOperationOfTheGroupIsNotCalledDuringAWait) {
  BlockedThreads waits;
  waits.add_callback(kOperation);
  waits.add_callback({.group = 2, .sequence = 6});
  EXPECT_FALSE(waits.has_callback_besides(kOperation));
  waits.add_callback({.group = 2, .sequence = 4});
  EXPECT_TRUE(waits.has_callback_besides(kOperation));
}

}  // namespace

namespace {

using Time = Deadline::Clock::time_point;

// A file like the file that a launcher creates.
class File {
 public:
  explicit File(std::size_t n_bytes = kWaitFileBytes)
      : file_(::memfd_create("long-waits-test", MFD_CLOEXEC)) {
    EXPECT_EQ(::ftruncate(file_.get(), static_cast<off_t>(n_bytes)), 0);
  }

  [[nodiscard]] std::string path() const { return fmt::format("/proc/self/fd/{}", file_.get()); }

  [[nodiscard]] std::optional<WaitRecord> read() const {
    std::vector<std::byte> bytes(kWaitFileBytes);
    EXPECT_EQ(::pread(file_.get(), bytes.data(), bytes.size(), 0), std::ssize(bytes));
    const auto found = find_checked(bytes);
    return found ? decode_wait_record(*found) : std::nullopt;
  }

 private:
  Fd file_;
};

LongWait wait_for(std::vector<int> late, int seconds) {
  const Time time = Time(std::chrono::seconds(seconds));
  return {.since = time, .seen = time, .operation = "barrier #5", .late = std::move(late)};
}

TEST(LongWaits, AreInTheFileUntilTheyAreOver) {
  const File file;
  const auto waits = LongWaits::open(file.path(), base::Logger("test"));
  ASSERT_NE(waits, nullptr);
  EXPECT_TRUE(file.read().value().waits.empty());
  waits->note(kOperation, wait_for({1, 2}, 10));
  waits->note(kReceive, wait_for({3}, 11));
  ASSERT_EQ(file.read().value().waits.size(), 2U);
  EXPECT_EQ(file.read()->pid, ::getpid());
  waits->forget(kOperation);
  ASSERT_EQ(file.read().value().waits.size(), 1U);
  EXPECT_EQ(file.read()->waits.front().late, std::vector<int>{3});
  waits->forget(kOperation);
  waits->forget(kReceive);
  EXPECT_TRUE(file.read().value().waits.empty());
}

TEST(LongWaits, ThatGoOnBeganWhenTheyWereFirstNoted) {
  const File file;
  const auto waits = LongWaits::open(file.path(), base::Logger("test"));
  ASSERT_NE(waits, nullptr);
  waits->note(kOperation, wait_for({1, 2}, 10));
  waits->note(kOperation, wait_for({2}, 20));
  const LongWait wait = file.read().value().waits.at(0);
  EXPECT_EQ(wait.since, Time(std::chrono::seconds(10)));
  EXPECT_EQ(wait.seen, Time(std::chrono::seconds(20)));
  EXPECT_EQ(wait.late, std::vector<int>{2});
}

TEST(LongWaits, OfAJobThatIsOverAreGone) {
  const File file;
  auto waits = LongWaits::open(file.path(), base::Logger("test"));
  ASSERT_NE(waits, nullptr);
  waits->note(kOperation, wait_for({1}, 10));
  EXPECT_EQ(LongWaits::open(file.path(), base::Logger("test")), nullptr) << "one job has it";
  waits->close();
  EXPECT_TRUE(file.read().value().waits.empty());
  const auto next = LongWaits::open(file.path(), base::Logger("test"));
  ASSERT_NE(next, nullptr);
  next->note(kOperation, wait_for({1}, 10));
  waits->note(kReceive, wait_for({1}, 10));
  waits->forget(kReceive);
  waits.reset();
  EXPECT_EQ(file.read().value().waits.size(), 1U) << "that of the next";
}

TEST(LongWaits, AreLeftAloneByAChildOfFork) {
  const File file;
  auto waits = LongWaits::open(file.path(), base::Logger("test"));
  ASSERT_NE(waits, nullptr);
  waits->note(kOperation, wait_for({1}, 10));
  const pid_t child = ::fork();
  if (child == 0) {
    waits->forget(kOperation);
    waits.reset();
    ::_exit(0);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(file.read().value().waits.size(), 1U);
}

TEST(LongWaits, GoWithoutAFileThatIsNone) {
  EXPECT_EQ(LongWaits::open("", base::Logger("test")), nullptr);
  EXPECT_EQ(LongWaits::open("/no/such/file", base::Logger("test")), nullptr);
  const File shorter(100);
  EXPECT_EQ(LongWaits::open(shorter.path(), base::Logger("test")), nullptr);
}

}  // namespace
}  // namespace unisono::peers
