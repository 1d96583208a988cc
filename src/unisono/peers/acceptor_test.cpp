#include "unisono/peers/acceptor.h"

#include <pthread.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <limits>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"

#include "support/file_limit.h"
#include "support/process.h"
#include "support/starvation.h"

namespace unisono::peers {
namespace {

// Rank 0 of a job of three ranks at its data listener.
class AcceptorTest : public ::testing::Test {
 protected:
  // The acceptor is constructed under a limit of few open files.
  AcceptorTest() { limit_.reset(); }

  // Runs the loop until the client, which has sent its hello, is disconnected. One allocation of
  // the loop fails after `n_before` allocations; returns true if this has happened.
  bool connect(const net::HelloInfo& pending,
               const std::string& secret,
               int n_before = std::numeric_limits<int>::max()) {
    std::atomic<bool> is_over = false;
    const std::jthread client([&] {
      ::pthread_setname_np(::pthread_self(), "client");  // The client's allocations do not fail.
      const Deadline deadline = Deadline::after(std::chrono::seconds(10));
      try {
        const Fd socket = net::connect_tcp(net::local_address(listener_.get()), deadline);
        (void)net::connect_hello(socket.get(), secret, pending, deadline);
        std::byte byte{};
        (void)net::read_at_least_one(socket.get(), {&byte, 1}, deadline, "the acceptor");
      } catch (const std::exception&) {
        // Rejected or disconnected; `delivered_` distinguishes the two cases.
      }
      is_over = true;
    });
    std::array<char, 16> name{};
    ::pthread_getname_np(::pthread_self(), name.data(), name.size());
    const test::Starvation starvation(name.data(), n_before, 1);
    while (!is_over) {
      loop_.run_once(Deadline::after(std::chrono::milliseconds(10)));
    }
    return starvation.has_struck();
  }

  // Ranks and groups of accepted connections.
  std::vector<std::pair<int, std::uint32_t>> delivered_;
  Fd listener_ = net::listen_tcp(net::Address::parse("127.0.0.1", 0).value());
  net::EventLoop loop_;
  std::optional<test::FileLimit> limit_{128};
  Acceptor acceptor_{loop_,
                     listener_.get(),
                     {.job = "job", .purpose = "data", .rank = 0, .group = 0},
                     "secret",
                     3,
                     base::Logger("test", LogLevel::kError),
                     [this](const net::HelloInfo& pending, const Fd&, const auto&) {
                       delivered_.emplace_back(pending.rank, pending.group);
                     }};
};

TEST_F(AcceptorTest, HigherRanksOfTheJobAreLetIn) {
  connect({.job = "job", .purpose = "data", .rank = 2, .group = 0}, "secret");
  connect({.job = "job", .purpose = "data", .rank = 1, .group = 7}, "secret");
  EXPECT_THAT(delivered_, ::testing::ElementsAre(std::pair(2, 0U), std::pair(1, 7U)));
}

TEST_F(AcceptorTest, NobodyElseIs) {
  connect({.job = "job", .purpose = "data", .rank = 1, .group = 0}, "guess");
  connect({.job = "another", .purpose = "data", .rank = 1, .group = 0}, "secret");
  connect({.job = "job", .purpose = "node", .rank = 1, .group = 0}, "secret");
  connect({.job = "job", .purpose = "data", .rank = 0, .group = 0}, "secret");
  connect({.job = "job", .purpose = "data", .rank = 3, .group = 0}, "secret");
  EXPECT_THAT(delivered_, ::testing::IsEmpty());
}

TEST_F(AcceptorTest, AThousandWhoAreSilentKeepNobodyOutForLong) {
  std::vector<Fd> silent(600);  // The number of files is also limited in this process.
  for (Fd& socket : silent) {
    socket = net::connect_tcp(net::local_address(listener_.get()),
                              Deadline::after(std::chrono::seconds(10)));
  }
  // These connections, with two seconds each, would block the rank for 37 s. The client times out
  // after 10 s.
  connect({.job = "job", .purpose = "data", .rank = 1, .group = 0}, "secret");
  EXPECT_THAT(delivered_, ::testing::ElementsAre(std::pair(1, 0U)));
}

TEST_F(AcceptorTest, WithoutMemoryAConnectionIsLostAndNothingElse) {
  const net::HelloInfo member{.job = "job", .purpose = "data", .rank = 1, .group = 0};
  const int n_files = test::n_entries("/proc/self/fd");
  for (const char* const secret : {"secret", "guess"}) {
    for (int n_before = 0; connect(member, secret, n_before); ++n_before) {
      EXPECT_EQ(test::n_entries("/proc/self/fd"), n_files) << "after " << n_before;
    }
  }
  delivered_.clear();
  connect(member, "secret");
  EXPECT_THAT(delivered_, ::testing::ElementsAre(std::pair(1, 0U)));
}

// Returns the next descriptor that the process would get.
int next_file() {
  return Fd(::dup(STDERR_FILENO)).get();
}

TEST(FileReserve, IsUsedOnceDescriptorsHaveLackedForAWhile) {
  FileReserve reserve;
  const FileReserve::Time start = FileReserve::Time::clock::now();
  const test::FileLimit none_left(static_cast<rlim_t>(next_file()));
  EXPECT_EQ(::dup(STDERR_FILENO), -1);
  constexpr std::chrono::milliseconds kStep{500};
  for (auto time = start; time < start + kFilePatience; time += kStep) {
    EXPECT_FALSE(reserve.note_lack(time));
  }
  EXPECT_TRUE(reserve.note_lack(start + kFilePatience));
  {
    const Fd other(::dup(STDERR_FILENO));
    EXPECT_TRUE(other.is_open());
    EXPECT_FALSE(reserve.refill());
    EXPECT_FALSE(reserve.note_lack(start + kFilePatience + kStep));
  }
  EXPECT_TRUE(reserve.refill());
  EXPECT_EQ(::dup(STDERR_FILENO), -1);
}

TEST(FileReserve, IsKeptWhereTheyLackedLongBeforeAndCameFree) {
  FileReserve reserve;
  const FileReserve::Time start = FileReserve::Time::clock::now();
  EXPECT_FALSE(reserve.note_lack(start));
  EXPECT_FALSE(reserve.note_lack(start + 2 * kFilePatience));
}

}  // namespace
}  // namespace unisono::peers
