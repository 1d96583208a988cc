#include "unisono/store/tcp_store.h"

#include <sys/poll.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/base/thread.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/testing/stores.h"
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

// The end of a wait and its cancellation may cross at any moment. The replies must stay in order.
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
  // The call ends with a timeout of its own wait, or while it waits for the other thread's request.
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
                           .logger = base::Logger("store", LogLevel::kError)});
  const TcpStore store({.host = "127.0.0.1", .port = host.address().port(), .secret = GetParam()},
                       soon());
  EXPECT_EQ(store.job(), "STEP=7");
}

TEST_P(TcpStoreTest, KnowsItsOwnAddress) {
  EXPECT_EQ(store_->local_address().ip(), "127.0.0.1");
}

// Interrupts waits, as the signal handler of a language binding does.
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

// Behaves like PyTorch's server for a client: closes the connection after unknown requests. Ends
// the wait only after the cancellation, so that both replies are in transit.
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
  // The first server accepts and never answers. There is no second server.
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

using ::testing::AllOf;
using ::testing::ThrowsMessage;

// Options of servers and clients with and without TLS.
TcpServerOptions server(bool tls, bool allows_plain = false) {
  TcpServerOptions options = testing::quiet("secret");
  options.tls = tls;
  options.plain_clients.own_user = allows_plain;
  return options;
}

TcpStoreOptions client(const net::Address& server, bool tls, const std::string& secret = "secret") {
  TcpStoreOptions options = testing::client_of(server, secret);
  options.tls = tls;
  return options;
}

TEST(StoreTls, LargeValuesPassInBothDirections) {
  const TcpStoreHost host(server(true));
  TcpStore store(client(host.address(), true), soon());
  for (const std::size_t n_bytes : {0U, 1U, 16'383U, 16'384U, 65'536U, 5'000'000U}) {
    std::string value(n_bytes, '\0');
    for (std::size_t i = 0; i < n_bytes; ++i) {
      value[i] = static_cast<char>(i * 7 + i / 256);
    }
    store.set("k", value);
    EXPECT_TRUE(store.get("k", soon()) == value) << n_bytes;
  }
}

TEST(StoreTls, ManyClientsWorkAtTheSameTime) {
  const TcpStoreHost host(server(true));
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      TcpStore store(client(host.address(), true), soon());
      for (int n = 0; n < 100; ++n) {
        store.add("sum", 1);
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  TcpStore store(client(host.address(), true), soon());
  EXPECT_EQ(store.add("sum", 0), 800);
}

TEST(StoreTls, BothSidesHaveToSpeakIt) {
  const TcpStoreHost with(server(true));
  EXPECT_THAT([&] { TcpStore store(client(with.address(), false), soon()); },
              ThrowsMessage<Error>(HasSubstr("requires TLS (UNISONO_TLS=on)")));
  const TcpStoreHost without(server(false));
  EXPECT_THAT([&] { TcpStore store(client(without.address(), true), soon()); },
              ThrowsMessage<Error>(HasSubstr("UNISONO_TLS=on")));
}

TEST(StoreTls, AnotherSecretIsUnauthenticated) {
  const TcpStoreHost host(server(true));
  try {
    TcpStore store(client(host.address(), true, "another"), soon());
    FAIL() << "it was let in";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUnauthenticated);
    EXPECT_THAT(error.what(), HasSubstr("another secret"));
  }
}

TEST(StoreTls, TakesASecretOnBothSides) {
  const auto needs_a_secret = ThrowsMessage<Error>(
      AllOf(HasSubstr("UNISONO_TLS=on"), HasSubstr("set UNISONO_SECRET or UNISONO_SECRET_FILE")));
  for (const net::Address& address : {net::Address::loopback(0), net::Address::any(AF_INET, 0)}) {
    TcpServerOptions options = server(true);
    options.address = address;
    options.secret = "";
    options.insecure = true;
    EXPECT_THAT([&] { TcpStoreHost host(options); }, needs_a_secret);
  }
  TcpServerOptions plain = server(false);
  plain.secret = "";
  const TcpStoreHost host(plain);
  EXPECT_THAT([&] { TcpStore store(client(host.address(), true, ""), soon()); }, needs_a_secret);
}

TEST(StoreTls, PlainClientsAreServedBesideWhereThatIsAllowed) {
  const TcpStoreHost host(server(true, true));
  TcpStore sealed(client(host.address(), true), soon());
  TcpStore plain(client(host.address(), false, ""), soon());
  plain.set("k", "v");
  EXPECT_EQ(sealed.get("k", soon()), "v");
}

// Forwards the data between a client and a server, and records it.
class Listener {
 public:
  explicit Listener(const net::Address& server)
      : listener_(net::listen_tcp(net::Address::loopback(0))), thread_([this, server] {
          const Fd client = accept();
          const Fd to_server = net::connect_tcp(server, soon());
          std::thread back([&] { carry(to_server.get(), client.get()); });
          heard_ = carry(client.get(), to_server.get());
          back.join();
        }) {}

  [[nodiscard]] net::Address address() const { return net::local_address(listener_.get()); }

  // Returns the data that the client has sent until it closed the connection.
  std::string heard() {
    thread_.join();
    return heard_;
  }

 private:
  [[nodiscard]] Fd accept() const {
    EXPECT_TRUE(net::wait_for(listener_.get(), POLLIN, soon()));
    return net::accept_connection(listener_.get()).fd;
  }

  static std::string carry(int from, int to) {
    std::string text;
    std::vector<std::byte> buffer(100'000);
    try {
      while (true) {
        const std::size_t n = net::read_at_least_one(from, buffer, soon(), "client");
        net::write_all(to, std::span(buffer).first(n), soon(), "server");
        text.append(reinterpret_cast<const char*>(buffer.data()), n);
      }
    } catch (const Error&) {
      ::shutdown(to, SHUT_RDWR);
      return text;
    }
  }

  Fd listener_;
  std::string heard_;
  std::thread thread_;
};

TEST(StoreTls, AListenerOnThePathHearsNothing) {
  for (const bool tls : {false, true}) {
    const TcpStoreHost host(server(tls));
    Listener listener(host.address());
    {
      TcpStore store(client(listener.address(), tls), soon());
      store.set("confidential", "value");
      EXPECT_EQ(store.get("confidential", soon()), "value");
    }
    const bool is_heard = listener.heard().find("confidential") != std::string::npos;
    EXPECT_EQ(is_heard, !tls);
  }
}

}  // namespace
}  // namespace unisono::store
