#include "unisono/health/long_waits.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/wait_record.h"
#include "unisono/health/rank_wait.h"

namespace unisono::health {
namespace {

using Time = Deadline::Clock::time_point;

constexpr WaitId kOperation{.group = 2, .sequence = 5};
constexpr WaitId kReceive{.group = 2, .is_message = true, .sequence = 5};

// As a launcher makes it.
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
  const auto waits = LongWaits::open(file.path(), Logger("test"));
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
  const auto waits = LongWaits::open(file.path(), Logger("test"));
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
  auto waits = LongWaits::open(file.path(), Logger("test"));
  ASSERT_NE(waits, nullptr);
  waits->note(kOperation, wait_for({1}, 10));
  EXPECT_EQ(LongWaits::open(file.path(), Logger("test")), nullptr) << "one job has it";
  waits->close();
  EXPECT_TRUE(file.read().value().waits.empty());
  const auto next = LongWaits::open(file.path(), Logger("test"));
  ASSERT_NE(next, nullptr);
  next->note(kOperation, wait_for({1}, 10));
  waits->note(kReceive, wait_for({1}, 10));
  waits->forget(kReceive);
  waits.reset();
  EXPECT_EQ(file.read().value().waits.size(), 1U) << "that of the next";
}

TEST(LongWaits, AreLeftAloneByAChildOfFork) {
  const File file;
  auto waits = LongWaits::open(file.path(), Logger("test"));
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
  EXPECT_EQ(LongWaits::open("", Logger("test")), nullptr);
  EXPECT_EQ(LongWaits::open("/no/such/file", Logger("test")), nullptr);
  const File shorter(100);
  EXPECT_EQ(LongWaits::open(shorter.path(), Logger("test")), nullptr);
}

}  // namespace
}  // namespace unisono::health
