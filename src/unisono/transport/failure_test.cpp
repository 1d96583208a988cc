#include "unisono/transport/failure.h"

#include <chrono>
#include <thread>

#include <gtest/gtest.h>

namespace unisono::transport {
namespace {

TEST(Failure, TheFirstErrorCounts) {
  Failure failure;
  EXPECT_FALSE(failure.is_set());
  EXPECT_TRUE(failure.set({ErrorCode::kPeerLost, "first"}));
  EXPECT_FALSE(failure.set({ErrorCode::kTimeout, "second"}));
  EXPECT_STREQ(failure.error().what(), "first");
}

TEST(Failure, AWaitEndsWithTheErrorOrTheDeadline) {
  Failure failure;
  EXPECT_FALSE(failure.wait_until_set(Deadline::after(std::chrono::milliseconds(1))));
  std::thread other([&] { failure.set({ErrorCode::kPeerLost, "gone"}); });
  EXPECT_TRUE(failure.wait_until_set(Deadline::after(std::chrono::seconds(60))));
  other.join();
  EXPECT_TRUE(failure.wait_until_set(Deadline::after(std::chrono::seconds(0))));
}

TEST(RelayedError, NamesWhoToldIt) {
  const Error error = relayed("rank 1 (pid 7 on b)", Error(ErrorCode::kTimeout, "too late"));
  EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  EXPECT_STREQ(error.what(), "rank 1 (pid 7 on b) aborted: too late");
  EXPECT_EQ(root_cause(error.what()), "too late");
}

TEST(RelayedError, SaysTheCauseOnceHoweverManyPassItOn) {
  const std::string cause = "[rank 2/4] barrier #3: rank 3 (pid 9 on d) closed the connection";
  Error error(ErrorCode::kPeerLost, cause);
  for (const std::string name :
       {"rank 2 (pid 8 on c)", "rank 1 (pid 7 on b)", "rank 0 (pid 6 on a)"}) {
    error = relayed(name, error);
    EXPECT_EQ(error.what(), "rank 2 (pid 8 on c) aborted: " + cause);
    // Each rank adds the operation in which it received the error.
    error = Error(error.code(), "[" + name.substr(0, 6) + "/4] barrier #3: " + error.what());
    EXPECT_EQ(root_cause(error.what()), cause);
    EXPECT_EQ(root_rank(error.what()), "rank 2 (pid 8 on c)");
  }
}

TEST(RelayedError, LeavesTheWordsOfAProgramAlone) {
  for (const std::string text :
       {"the trainer of rank 5: it aborted: no data", "rank 3 (worker) aborted: no data"}) {
    EXPECT_EQ(root_cause(text), text);
    EXPECT_EQ(root_rank(text), text);
    const Error once = relayed("rank 1 (pid 7 on b)", Error(ErrorCode::kClosed, text));
    EXPECT_EQ(once.what(), "rank 1 (pid 7 on b) aborted: " + text);
    EXPECT_STREQ(relayed("rank 0 (pid 6 on a)", once).what(), once.what());
    EXPECT_EQ(root_cause(once.what()), text);
  }
}

}  // namespace
}  // namespace unisono::transport
