#include "unisono/comm/doorkeeper.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <exception>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

namespace unisono::comm {
namespace {

// Rank 0 of a job of three, at its data listener.
class DoorkeeperTest : public ::testing::Test {
 protected:
  // Runs the loop until the visitor, having said its hello, is hung up on.
  void visit(const net::HelloInfo& visitor, const std::string& secret) {
    std::atomic<bool> is_over = false;
    const std::jthread client([&] {
      const Deadline deadline = Deadline::after(std::chrono::seconds(10));
      try {
        const Fd socket = net::connect_tcp(net::local_address(listener_.get()), deadline);
        (void)net::connect_hello(socket.get(), secret, visitor, deadline);
        std::byte byte{};
        (void)net::read_at_least_one(socket.get(), {&byte, 1}, deadline, "the doorkeeper");
      } catch (const std::exception&) {
        // Turned away, or hung up on: what was delivered tells which.
      }
      is_over = true;
    });
    while (!is_over) {
      loop_.run_once(Deadline::after(std::chrono::milliseconds(10)));
    }
  }

  std::vector<int> delivered_;
  Fd listener_ = net::listen_tcp(net::Address::parse("127.0.0.1", 0).value());
  net::EventLoop loop_;
  Doorkeeper doorkeeper_{
      loop_,
      listener_.get(),
      {.job = "job", .purpose = "data", .rank = 0, .group = 0},
      "secret",
      3,
      Logger("test", LogLevel::kError),
      [this](const net::HelloInfo& theirs, const Fd&) { delivered_.push_back(theirs.rank); }};
};

TEST_F(DoorkeeperTest, HigherRanksOfTheJobAreLetIn) {
  visit({.job = "job", .purpose = "data", .rank = 2, .group = 0}, "secret");
  visit({.job = "job", .purpose = "data", .rank = 1, .group = 0}, "secret");
  EXPECT_THAT(delivered_, ::testing::ElementsAre(2, 1));
}

TEST_F(DoorkeeperTest, NobodyElseIs) {
  visit({.job = "job", .purpose = "data", .rank = 1, .group = 0}, "guess");
  visit({.job = "another", .purpose = "data", .rank = 1, .group = 0}, "secret");
  visit({.job = "job", .purpose = "node", .rank = 1, .group = 0}, "secret");
  visit({.job = "job", .purpose = "data", .rank = 1, .group = 7}, "secret");
  visit({.job = "job", .purpose = "data", .rank = 0, .group = 0}, "secret");
  visit({.job = "job", .purpose = "data", .rank = 3, .group = 0}, "secret");
  EXPECT_THAT(delivered_, ::testing::IsEmpty());
}

}  // namespace
}  // namespace unisono::comm
