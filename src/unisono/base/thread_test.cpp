#include "unisono/base/thread.h"

#include <pthread.h>

#include <array>
#include <cstddef>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono {
namespace {

// New threads want a stack larger than any address space.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    ::pthread_getattr_default_np(&usual_);
    pthread_attr_t attributes;
    ::pthread_attr_init(&attributes);
    constexpr std::size_t kImpossible = std::size_t{1} << 60;
    EXPECT_EQ(::pthread_attr_setstacksize(&attributes, kImpossible), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&attributes), 0);
    ::pthread_attr_destroy(&attributes);
  }

  ~NoMoreThreads() {
    ::pthread_setattr_default_np(&usual_);
    ::pthread_attr_destroy(&usual_);
  }

  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  NoMoreThreads(NoMoreThreads&&) = delete;
  NoMoreThreads& operator=(NoMoreThreads&&) = delete;

 private:
  pthread_attr_t usual_{};
};

TEST(StartThread, RunsTheBodyUnderTheName) {
  std::string name;
  std::thread thread = start_thread("unisono-test", "no thread", [&] {
    std::array<char, 16> buffer{};
    ::pthread_getname_np(::pthread_self(), buffer.data(), buffer.size());
    name = buffer.data();
  });
  thread.join();
  EXPECT_EQ(name, "unisono-test");
}

TEST(StartThread, WithoutRoomForAThreadTheErrorSaysWhoWantedIt) {
  const NoMoreThreads none;
  try {
    start_thread("unisono-test", "rank 3 can't start its thread", [] {}).join();
    FAIL() << "a thread was started";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem);
    EXPECT_THAT(error.what(),
                ::testing::MatchesRegex("rank 3 can't start its thread: .*; raise the limit.*"));
  }
}

}  // namespace
}  // namespace unisono
