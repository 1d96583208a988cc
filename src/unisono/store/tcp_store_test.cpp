#include "unisono/store/tcp_store.h"

#include <sys/poll.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/bytes.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/interruption.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/testing/stores.h"
#include "unisono/store/testing/tcp.h"
#include "unisono/store/timed_mutex.h"

namespace unisono::store {
namespace {

using std::chrono::seconds;
using testing::at_once;
using ::testing::HasSubstr;
using testing::soon;

class TcpStoreTest : public testing::ServedStore {
 protected:
  std::unique_ptr<TcpStore> store_ = connect();
};

// The end of a wait and its cancellation cross at any moment: the replies must stay in step.
TEST_P(TcpStoreTest, CancellationsThatCrossTheValueKeepTheRepliesInStep) {
  const auto other = connect();
  for (int round = 0; round < 200; ++round) {
    const std::string key = "k" + std::to_string(round);
    std::thread setter([&] { other->set(key, key); });
    try {
      EXPECT_EQ(store_->get(key, Deadline::after(std::chrono::microseconds(round * 3))), key);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout) << error.what();
    }
    setter.join();
    EXPECT_EQ(store_->get(key, soon()), key);
  }
}

TEST_P(TcpStoreTest, AWaitBehindAnotherThreadsWaitKeepsItsOwnDeadline) {
  std::thread waiting([&] { EXPECT_EQ(store_->get("late", soon()), "now"); });
  const auto other = connect();
  // Ends either way: as a timeout of its own wait, or while it stands behind the other thread's.
  EXPECT_THROW((void)store_->get("never", at_once()), Error);
  other->set("late", "now");
  waiting.join();
}

TEST_P(TcpStoreTest, ALostStoreIsSaidOnceAndThenClosed) {
  host_.reset();
  try {
    (void)store_->num_keys();
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
  }
  try {
    store_->set("k", "1");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kClosed);
    EXPECT_THAT(error.what(), HasSubstr("closed after: store 127.0.0.1:"));
  }
}

TEST_P(TcpStoreTest, ALostStoreEndsAWait) {
  std::thread stopper([&] { host_.reset(); });
  EXPECT_THROW((void)store_->get("never", soon()), Error);
  stopper.join();
}

TEST_P(TcpStoreTest, KnowsTheJobThatTheServerHas) {
  EXPECT_EQ(store_->job(), "");
  const TcpStoreHost host({.address = net::Address::loopback(0),
                           .secret = GetParam(),
                           .job = "STEP=7",
                           .logger = Logger("store", LogLevel::kError)});
  const TcpStore store({.host = "127.0.0.1", .port = host.address().port(), .secret = GetParam()},
                       soon());
  EXPECT_EQ(store.job(), "STEP=7");
}

TEST_P(TcpStoreTest, KnowsItsOwnAddress) {
  EXPECT_EQ(store_->local_address().ip(), "127.0.0.1");
}

// Has waits end as where a language's signal handler raises.
class Interruptions {
 public:
  Interruptions() {
    set_interruption_check([] { throw Error(ErrorCode::kInterrupted, "enough"); });
  }

  ~Interruptions() { set_interruption_check(nullptr); }

  Interruptions(const Interruptions&) = delete;
  Interruptions& operator=(const Interruptions&) = delete;
  Interruptions(Interruptions&&) = delete;
  Interruptions& operator=(Interruptions&&) = delete;
};

template <class Function>
void expect_interruption(Function&& function) {
  const auto start = Deadline::Clock::now();
  try {
    function();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInterrupted) << error.what();
  }
  EXPECT_LT(Deadline::Clock::now() - start, seconds(5));
}

TEST_P(TcpStoreTest, AnInterruptedWaitLeavesTheStoreUsable) {
  {
    const Interruptions interruptions;
    expect_interruption([&] { (void)store_->get("never", soon()); });
    expect_interruption([&] { (void)store_->queue_pop("never", soon()); });
    expect_interruption([&] { store_->barrier("never", 2, soon()); });
  }
  store_->set("k", "1");
  EXPECT_EQ(store_->get("k", soon()), "1");
}

TEST(TcpStore, WhoWaitsForHisTurnIsInterrupted) {
  TimedMutex mutex;
  const TimedLock lock(mutex, soon(), "the test");
  const Interruptions interruptions;
  expect_interruption([&] { (void)mutex.try_lock_until(soon()); });
}

INSTANTIATE_TEST_SUITE_P(Secrets,
                         TcpStoreTest,
                         ::testing::Values("", "secret"),
                         [](const auto& secret) {
                           return std::string(*secret.param == '\0' ? "Plain" : "Hello");
                         });

// PyTorch's server, as far as a client can tell: it hangs up on requests that it does not know. It
// ends the wait only when it sees the cancellation: both answers are on their way.
void serve_a_crossing(int listener) {
  ASSERT_TRUE(net::wait_for(listener, POLLIN, soon()));
  {
    const Fd fd = net::accept_connection(listener).fd;
    std::vector<std::byte> opening(7);  // Validate, explain, version.
    net::read_exact(fd.get(), opening, soon(), "client");
    EXPECT_EQ(opening.back(), static_cast<std::byte>(Opcode::kVersion));
  }
  ASSERT_TRUE(net::wait_for(listener, POLLIN, soon()));
  const Fd fd = net::accept_connection(listener).fd;
  const auto read = [&](std::size_t n_bytes) {
    std::vector<std::byte> bytes(n_bytes);
    net::read_exact(fd.get(), bytes, soon(), "client");
    return bytes;
  };
  const auto write = [&](const ByteWriter& bytes) {
    net::write_all(fd.get(), bytes.bytes(), soon(), "client");
  };
  const std::vector<std::byte> opening = read(10);  // Validate, and a ping with its nonce.
  ByteWriter nonce;
  nonce.put_raw(std::span(opening).last(4));
  write(nonce);
  (void)read(1 + 8 + 8 + 2);  // Wait for "/k".
  EXPECT_EQ(read(1).front(), static_cast<std::byte>(Opcode::kCancelWait));
  ByteWriter answers;
  answers.put(static_cast<std::uint8_t>(WaitReply::kStopWaiting));
  answers.put(static_cast<std::uint8_t>(WaitReply::kWaitCanceled));
  write(answers);
  (void)read(1 + 8 + 2);  // Get "/k".
  ByteWriter value;
  value.put_string("value");
  write(value);
}

TEST(TcpStore, AValueThatCrossesTheCancellationIsTaken) {
  const Fd listener = net::listen_tcp(*net::Address::parse("127.0.0.1", 0));
  std::thread server([&] { serve_a_crossing(listener.get()); });
  TcpStore store({.host = "127.0.0.1",
                  .port = net::local_address(listener.get()).port(),
                  .secret = "",
                  .io_timeout = seconds(5)},
                 soon());
  EXPECT_EQ(store.get("k", at_once()), "value");
  server.join();
}

TEST(TcpStore, ConnectingIsInterrupted) {
  const Fd listener = net::listen_tcp(*net::Address::parse("127.0.0.1", 0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  const Interruptions interruptions;
  // Somebody who accepts and never answers; nobody.
  expect_interruption([&] {
    const TcpStore store({.host = "127.0.0.1", .port = port, .secret = "secret"}, soon());
  });
  expect_interruption(
      [&] { const TcpStore store({.host = "127.0.0.1", .port = 1, .secret = ""}, soon()); });
}

TEST(TcpStore, AStoreThatNeverComesIsATimeoutWithItsAddress) {
  std::uint16_t port = 0;
  {
    const TcpStoreHost gone({.address = *net::Address::parse("127.0.0.1", 0), .secret = "s"});
    port = gone.address().port();
  }
  try {
    const TcpStore store({.host = "127.0.0.1", .port = port, .secret = "s"}, at_once());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
    EXPECT_THAT(error.what(), HasSubstr("127.0.0.1:" + std::to_string(port)));
    EXPECT_THAT(error.what(), HasSubstr("Connection refused"));
  }
}

}  // namespace
}  // namespace unisono::store
