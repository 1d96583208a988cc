#include "unisono/base/thread.h"

#include <pthread.h>

#include <array>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/base/testing/no_more_threads.h"

namespace unisono {
namespace {

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
  const testing::NoMoreThreads none;
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
