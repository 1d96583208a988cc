#include "unisono/base/guarded_pages.h"

#include <sys/mman.h>
#include <sys/wait.h>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono {
namespace {

using ::testing::HasSubstr;
using Touch = GuardedPages::Touch;

constexpr std::size_t kPage = 4096;

std::span<std::byte> pages(std::size_t n) {
  return {static_cast<std::byte*>(std::aligned_alloc(kPage, n * kPage)), n * kPage};
}

class GuardedPagesTest : public ::testing::Test {
 protected:
  GuardedPagesTest() { std::memset(memory_.data(), 7, memory_.size()); }

  ~GuardedPagesTest() override { std::free(memory_.data()); }

  std::span<std::byte> memory_ = pages(4);
};

std::byte read(const std::byte& byte) {
  return const_cast<const volatile std::byte&>(byte);
}

// aarch64's kernel does not report the kind of access.
bool is(Touch touch, Touch expected) {
  return touch == expected || touch == Touch::kSome;
}

TEST_F(GuardedPagesTest, AReadIsSaidOnceAndLetThrough) {
  ::testing::internal::CaptureStderr();
  {
    const GuardedPages guard(memory_, "the message");
    EXPECT_EQ(guard.first_touch(), Touch::kNone);
    EXPECT_EQ(read(memory_[kPage]), std::byte{7});
    EXPECT_TRUE(is(guard.first_touch(), Touch::kRead));
    memory_[5] = std::byte{1};
    EXPECT_EQ(read(memory_[5]), std::byte{1});
    EXPECT_TRUE(is(guard.first_touch(), Touch::kRead));
  }
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::MatchesRegex("the message is read.*\n"));
}

TEST_F(GuardedPagesTest, AWriteOfAnotherThreadIsSaid) {
  ::testing::internal::CaptureStderr();
  const GuardedPages guard(memory_, "the message");
  std::thread([&] { memory_[3 * kPage] = std::byte{9}; }).join();
  EXPECT_TRUE(is(guard.first_touch(), Touch::kWrite));
  EXPECT_EQ(read(memory_[3 * kPage]), std::byte{9});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("written to\n"));
}

TEST_F(GuardedPagesTest, OnlyWholePagesAreGuarded) {
  const GuardedPages guard(memory_.subspan(1, 2 * kPage), "the message");
  EXPECT_EQ(read(memory_[0]), std::byte{7});
  EXPECT_EQ(read(memory_[1]), std::byte{7});
  EXPECT_EQ(read(memory_[2 * kPage]), std::byte{7});
  EXPECT_EQ(guard.first_touch(), Touch::kNone);
  const GuardedPages none(memory_.subspan(2 * kPage + 1, kPage), "no page");
  EXPECT_EQ(read(memory_[2 * kPage + 1]), std::byte{7});
  EXPECT_EQ(none.first_touch(), Touch::kNone);
  const GuardedPages nothing({}, "nothing");
}

TEST_F(GuardedPagesTest, AreOrdinaryOnesAfterwards) {
  for (int n = 0; n < 10000; ++n) {
    const GuardedPages guard(memory_, "the message");
  }
  std::memset(memory_.data(), 3, memory_.size());
  EXPECT_EQ(read(memory_[kPage]), std::byte{3});
}

TEST_F(GuardedPagesTest, ThousandsMayBeGuardedAndMoreAreLeftAlone) {
  const std::span<std::byte> many = pages(5000);
  std::vector<std::unique_ptr<GuardedPages>> guards;
  for (std::size_t page = 0; page < 5000; ++page) {
    guards.push_back(std::make_unique<GuardedPages>(many.subspan(page * kPage, kPage), "one"));
  }
  many[4999 * kPage] = std::byte{1};
  EXPECT_EQ(guards.back()->first_touch(), Touch::kNone);
  guards.clear();
  std::memset(many.data(), 1, many.size());
  std::free(many.data());
}

using GuardedPagesDeathTest = GuardedPagesTest;

TEST_F(GuardedPagesDeathTest, OtherFaultsEndTheProcessAsEver) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        const GuardedPages guard(memory_, "the message");
        void* const none = ::mmap(nullptr, kPage, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        *static_cast<volatile char*>(none) = 1;
      },
      // Sanitizers install a handler that exits.
      [](int status) { return !WIFEXITED(status) || WEXITSTATUS(status) != 0; },
      "");
}

}  // namespace
}  // namespace unisono
