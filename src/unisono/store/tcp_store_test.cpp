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
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/tcp_host.h"

namespace unisono::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::UnorderedElementsAre;
using Keys = std::vector<std::string>;

Deadline soon() {
  return Deadline::after(seconds(30));
}

Deadline at_once() {
  return Deadline::after(milliseconds(2));
}

// Plain (no secret) and after a hello: the two ways in which waits go over the wire.
class TcpStoreTest : public ::testing::TestWithParam<const char*> {
 protected:
  std::unique_ptr<TcpStore> connect() {
    return std::make_unique<TcpStore>(
        TcpStoreOptions{
            .host = host_->address().ip(), .port = host_->address().port(), .secret = GetParam()},
        soon());
  }

  std::unique_ptr<TcpStoreHost> host_ = std::make_unique<TcpStoreHost>(
      TcpServerOptions{.address = *net::Address::parse("127.0.0.1", 0),
                       .secret = GetParam(),
                       .logger = Logger("store", LogLevel::kError)});
  std::unique_ptr<TcpStore> store_ = connect();
};

TEST_P(TcpStoreTest, ValuesAreAnyBytes) {
  std::string value(100'000, '\0');
  for (std::size_t i = 0; i < value.size(); ++i) {
    value[i] = static_cast<char>(i * 31 + i / 256);
  }
  store_->set("binary", value);
  EXPECT_TRUE(store_->get("binary", soon()) == value);
  store_->set("", "");
  EXPECT_EQ(store_->get("", soon()), "");
  EXPECT_EQ(store_->try_get(""), "");
  EXPECT_EQ(store_->try_get("missing"), std::nullopt);
}

TEST_P(TcpStoreTest, EveryCallDoesItsWork) {
  EXPECT_EQ(store_->add("n", 5), 5);
  EXPECT_EQ(store_->add("n", -7), -2);
  store_->append("text", "ab");
  store_->append("text", "c");
  EXPECT_EQ(store_->get("text", soon()), "abc");
  EXPECT_EQ(store_->compare_set("text", "abc", "new"), "new");
  EXPECT_EQ(store_->compare_set("text", "abc", "newer"), "new");
  store_->multi_set(std::vector<Store::KeyValue>{{"a", "1"}, {"b", "2"}});
  EXPECT_THAT(store_->multi_get(Keys{"b", "a"}, soon()), ElementsAre("2", "1"));
  EXPECT_TRUE(store_->check(Keys{"a", "b"}));
  EXPECT_FALSE(store_->check(Keys{"a", "c"}));
  EXPECT_EQ(store_->num_keys(), 4);
  EXPECT_THAT(store_->list_keys(), UnorderedElementsAre("n", "text", "a", "b"));
  EXPECT_TRUE(store_->delete_key("a"));
  EXPECT_FALSE(store_->delete_key("a"));
  EXPECT_EQ(store_->num_keys(), 3);
}

TEST_P(TcpStoreTest, QueuesAreFirstInFirstOut) {
  EXPECT_EQ(store_->try_queue_pop("q"), std::nullopt);
  store_->queue_push("q", "1");
  store_->queue_push("q", "");
  EXPECT_EQ(store_->queue_len("q"), 2);
  EXPECT_EQ(store_->queue_pop("q", soon()), "1");
  EXPECT_EQ(store_->try_queue_pop("q"), "");
  EXPECT_EQ(store_->queue_len("q"), 0);
}

TEST_P(TcpStoreTest, GetWaitsForAnotherClient) {
  const auto other = connect();
  std::thread setter([&] { other->set("late", "here"); });
  EXPECT_EQ(store_->get("late", soon()), "here");
  setter.join();
}

TEST_P(TcpStoreTest, TimeoutsNameTheMissingKeysAndTheStoreGoesOn) {
  store_->set("there", "");
  const auto message_of = [&](const auto& call) {
    try {
      call();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kTimeout);
      return std::string(error.what());
    }
    ADD_FAILURE() << "no timeout";
    return std::string();
  };
  const std::string get = message_of([&] { (void)store_->get("roster", at_once()); });
  EXPECT_THAT(get, HasSubstr("store " + host_->address().to_string() + ": get: no \"roster\""));
  const std::string wait =
      message_of([&] { store_->wait(Keys{"there", "lost", "gone"}, at_once()); });
  EXPECT_THAT(wait, HasSubstr("wait: no \"lost\", \"gone\" within"));
  EXPECT_THAT(wait, Not(HasSubstr("there")));
  EXPECT_THAT(message_of([&] { (void)store_->multi_get(Keys{"lost"}, at_once()); }),
              HasSubstr("multi_get: no \"lost\""));
  EXPECT_THAT(message_of([&] { (void)store_->queue_pop("q", at_once()); }),
              HasSubstr("queue_pop: no \"q\""));
  EXPECT_THAT(message_of([&] { store_->barrier("b", 2, at_once()); }),
              HasSubstr("barrier \"b\": 1 of 2 came"));

  store_->set("roster", "now");
  EXPECT_EQ(store_->get("roster", soon()), "now");
}

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

TEST_P(TcpStoreTest, BarrierHoldsUntilAllHaveCome) {
  constexpr int kWorld = 3;
  std::atomic<int> n_arrived = 0;
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kWorld; ++rank) {
    threads.emplace_back([&] {
      const auto mine = connect();
      for (int round = 1; round <= 5; ++round) {
        ++n_arrived;
        mine->barrier("b" + std::to_string(round), kWorld, soon());
        EXPECT_GE(n_arrived.load(), round * kWorld);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
}

TEST_P(TcpStoreTest, EachQueuedValueGoesToOneWaiter) {
  constexpr int kClients = 3;
  constexpr int kValues = 30;
  std::atomic<int> sum = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < kClients; ++i) {
    threads.emplace_back([&] {
      const auto mine = connect();
      for (int n = 0; n < kValues / kClients; ++n) {
        sum += std::stoi(mine->queue_pop("q", soon()));
      }
    });
  }
  for (int value = 1; value <= kValues; ++value) {
    store_->queue_push("q", std::to_string(value));
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(sum.load(), kValues * (kValues + 1) / 2);
}

TEST_P(TcpStoreTest, ThreadsMayShareOneClient) {
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 50; ++n) {
        store_->add("n", 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(store_->get("n", soon()), "200");
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

TEST_P(TcpStoreTest, WhatIsTooLargeIsRefusedBeforeItIsSent) {
  EXPECT_THROW(store_->set(std::string(8192, 'k'), ""), Error);
  EXPECT_THROW(store_->set("k", std::string((8 << 20) + 1, 'x')), Error);
  EXPECT_THROW((void)store_->check(Keys(131'073)), Error);
  store_->set(std::string(8191, 'k'), std::string(8 << 20, 'x'));
  EXPECT_EQ(store_->num_keys(), 1) << "the connection is still good";
}

TEST_P(TcpStoreTest, KnowsItsOwnAddress) {
  EXPECT_EQ(store_->local_address().ip(), "127.0.0.1");
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
    std::vector<std::byte> opening(11);
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
