// What a server takes at most: what becomes of those who go beyond, and what is logged of them.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
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
#include "unisono/net/hello.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_server.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/stores.h"
#include "unisono/store/testing/tcp.h"
#include "unisono/store/watch.h"

#include "support/file_limit.h"
#include "support/temporary_folder.h"

namespace unisono::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::client_of;
using ::testing::HasSubstr;
using testing::message_of;
using testing::quiet;
using testing::RawClient;
using testing::soon;
using ::testing::ThrowsMessage;

TEST(TcpLimits, AClientThatReadsNothingIsDroppedAtItsLimit) {
  TcpServerOptions options = quiet();
  options.limits.max_unread_bytes = 20'000'000;
  const TcpStoreHost host(options);
  TcpStore good(client_of(host.address()), soon());
  good.set("big", std::string(8'000'000, 'x'));
  EXPECT_TRUE(good.check(std::vector<std::string>{"big"}));
  RawClient deaf(host.address());
  deaf.send_validate();
  ByteWriter many;
  for (int i = 0; i < 20; ++i) {
    many.put_raw(begin(Opcode::kGet, "big").bytes());
  }
  deaf.send(many.bytes());
  EXPECT_EQ(good.get("big", soon()).size(), 8'000'000U);
  EXPECT_TRUE(deaf.is_dropped());
}

TEST(TcpLimits, TheNumberOfConnectionsIsLimited) {
  TcpServerOptions options = quiet();
  options.limits.max_connections = 2;
  const TcpStoreHost host(options);
  TcpStore first(client_of(host.address()), soon());
  {
    const TcpStore second(client_of(host.address()), soon());
    RawClient plain(host.address());
    plain.send_validate();
    plain.send(begin(Opcode::kNumKeys).bytes());
    EXPECT_TRUE(plain.is_dropped());
    EXPECT_THAT([&] { const TcpStore ours(client_of(host.address()), soon()); },
                ThrowsMessage<Error>(HasSubstr(
                    "ended the connection: all 2 connections that this store takes are in use")));
  }
  first.set("k", "1");
  EXPECT_EQ(first.get("k", soon()), "1");
}

TEST(TcpLimits, WhoIsOneTooManyAfterAHelloIsToldSo) {
  TcpServerOptions options = quiet("secret");
  options.limits.max_connections = 1;
  options.notes_turned_away = true;
  const TcpStoreHost host(options);
  TcpStore first(client_of(host.address(), "secret"), soon());
  TcpStore second(client_of(host.address(), "secret"), soon());
  EXPECT_THAT([&] { (void)second.num_keys(); },
              ThrowsMessage<Error>(HasSubstr("all 1 connections that this store takes")));
  EXPECT_THAT(first.get(kTurnedAwayKey, soon()), HasSubstr("all 1 connections"));
}

TEST(TcpLimits, StrangersTakeNoClientsPlace) {
  TcpServerOptions options = quiet("secret");
  options.limits.max_connections = 1;
  const TcpStoreHost host(options);
  const RawClient silent(host.address());
  RawClient half(host.address());
  half.send({net::kHelloByte});
  TcpStore client(client_of(host.address(), "secret"), soon());
  client.set("k", "1");
  EXPECT_EQ(client.get("k", soon()), "1");
}

// As in a process that may open few files.
std::unique_ptr<TcpStoreHost> host_of_few(const TcpServerOptions& options) {
  const test::FileLimit limit(128);
  return std::make_unique<TcpStoreHost>(options);
}

TEST(TcpLimits, AThousandStrangersKeepAClientOutForAMoment) {
  const auto host = host_of_few(quiet("secret"));
  std::vector<std::unique_ptr<RawClient>> silent(600);  // Files are limited here, too.
  for (auto& client : silent) {
    client = std::make_unique<RawClient>(host->address());
  }
  // For those, each of whom has two seconds, it would be 37.
  TcpStore client(client_of(host->address(), "secret"), Deadline::after(seconds(20)));
  client.set("k", "1");
  EXPECT_EQ(client.get("k", soon()), "1");
}

TEST(TcpLimits, WhoHasBegunItsHelloIsNotSentAwayForThoseWhoAreSilent) {
  const auto host = host_of_few(quiet("secret"));
  RawClient slow(host->address());
  net::Hello hello(net::Hello::Side::kClient, "secret", {.job = "", .purpose = kHelloPurpose});
  slow.send(hello.take_output());
  std::vector<std::unique_ptr<RawClient>> silent(40);
  for (auto& client : silent) {
    client = std::make_unique<RawClient>(host->address());
  }
  EXPECT_TRUE(silent.front()->is_dropped());
  EXPECT_FALSE(slow.has_ended());
}

// What is beyond the server's limits alone.
TcpStoreOptions unlimited_client_of(const net::Address& address, const std::string& secret) {
  TcpStoreOptions options = client_of(address, secret);
  options.limits.max_value_bytes = std::size_t{64} << 20;
  options.limits.max_key_bytes = std::size_t{64} << 20;
  return options;
}

TEST(TcpLimits, OurClientsAreToldWhatEndsTheirConnection) {
  for (const char* secret : {"", "secret"}) {
    TcpServerOptions options = quiet(secret);
    options.limits.max_value_bytes = 1000;
    options.limits.max_key_bytes = 100;
    options.limits.max_store_bytes = 10'000;
    const TcpStoreHost host(options);
    const auto reason = [&](const std::function<void(TcpStore&)>& call) {
      TcpStore store(unlimited_client_of(host.address(), secret), soon());
      return message_of([&] {
        call(store);
        (void)store.num_keys();
        store.set("k", "1");
      });
    };
    EXPECT_THAT(reason([](TcpStore& store) { store.set("k", std::string(2000, 'x')); }),
                HasSubstr("set: a value of 2000 bytes for \"k\"; 1000 are allowed"));
    EXPECT_THAT(reason([](TcpStore& store) { store.set("k", std::string(20'000'000, 'x')); }),
                HasSubstr("set: a value of 20000000 bytes for \"k\"; 1000 are allowed"));
    EXPECT_THAT(reason([](TcpStore& store) { (void)store.get(std::string(200, 'k'), soon()); }),
                HasSubstr("wait: a key of 201 bytes; 100 are allowed"));
    EXPECT_THAT(reason([](TcpStore& store) {
                  store.append("k", std::string(900, 'x'));
                  store.append("k", std::string(200, 'x'));
                }),
                HasSubstr("append: \"k\" has 900 bytes and would get 200 more; 1000 are allowed"));
    EXPECT_THAT(reason([](TcpStore& store) {
                  for (int i = 0; i < 12; ++i) {
                    store.set("k" + std::to_string(i), std::string(1000, 'x'));
                  }
                }),
                HasSubstr("set: the store is full: it holds "));
  }
}

TEST(TcpLimits, OurClientsGoOnAfterARefusal) {
  TcpServerOptions options = quiet("secret");
  options.limits.max_unread_bytes = 10'000;
  options.limits.max_watches = 1;
  options.limits.max_store_bytes = 18'000;
  const TcpStoreHost host(options);
  TcpStore store(client_of(host.address(), "secret"), soon());
  const std::vector<std::string> keys{"a", "b"};
  for (const std::string& key : keys) {
    store.set(key, std::string(8000, 'x'));
  }
  EXPECT_THAT(message_of([&] { (void)store.multi_get(keys, soon()); }),
              HasSubstr("an answer of 16017 bytes; 10000 are allowed"));
  EXPECT_EQ(store.get("a", soon()).size(), 8000U);
  EXPECT_THAT(message_of([&] { store.compare_set("c", "", std::string(4000, 'x')); }),
              HasSubstr("compare_set: the store is full"));
  store.set("no text", "\xff\x9b");
  EXPECT_THAT(message_of([&] { store.add("no text", 1); }),
              HasSubstr("the value of \"no text\" is no decimal number: \"??\""));
  EXPECT_TRUE(store.delete_key("no text"));
  const auto watch = store.watch("a", [](const KeyChange&) {});
  EXPECT_THAT(message_of([&] { (void)store.watch("b", [](const KeyChange&) {}); }),
              HasSubstr("watch: \"b\" besides the 1 keys that this client watches"));
  EXPECT_THAT(message_of([&] { store.set_at_end("k", std::string(4097, 'x')); }),
              HasSubstr("at most 4096"));
  EXPECT_EQ(store.num_keys(), 2);
}

void be_strangers(const net::Address& address, int n) {
  for (int i = 0; i < n; ++i) {
    RawClient scanner(address);
    scanner.send({std::byte{'G'}});
    EXPECT_TRUE(scanner.is_dropped());
  }
}

TEST(TcpLimits, CountsTheWarningsThatAreTooMany) {
  TcpServerOptions options = quiet();
  options.logger = Logger("store");
  ::testing::internal::CaptureStderr();
  {
    const TcpStoreHost host(options);
    be_strangers(host.address(), 110);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              ::testing::ContainsRegex("warning: and 10 more in the last [0-9.]+ s, the last: "
                                       "store 127.0.0.1:[0-9]+: dropped 127.0.0.1:[0-9]+: it "
                                       "speaks no store's protocol\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 101);
}

// What is written to stderr lies in a file meanwhile.
class LogFile {
 public:
  LogFile()
      : file_(::open(folder_.path().c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600)),
        stderr_(::dup(STDERR_FILENO)) {
    ::dup2(file_.get(), STDERR_FILENO);
  }

  ~LogFile() { ::dup2(stderr_.get(), STDERR_FILENO); }

  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;
  LogFile(LogFile&&) = delete;
  LogFile& operator=(LogFile&&) = delete;

  [[nodiscard]] std::string text() const {
    std::string text(1 << 20, '\0');
    const ssize_t n = ::pread(file_.get(), text.data(), text.size(), 0);
    return text.substr(0, static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  }

 private:
  test::TemporaryFolder folder_;
  Fd file_;
  Fd stderr_;
};

TEST(TcpLimits, SaysHowManyItCountedWhenTheyHaveStopped) {
  TcpServerOptions options = quiet();
  options.logger = Logger("store");
  options.log_period = milliseconds(500);
  const LogFile log;
  const TcpStoreHost host(options);
  const Deadline deadline = soon();
  bool is_said = false;
  // On a slow machine a period may end between them.
  while (!is_said && !deadline.has_passed()) {
    be_strangers(host.address(), 110);
    const std::size_t n_before = log.text().size();
    const Deadline quiet_time = Deadline::after(seconds(2));
    while (!is_said && !quiet_time.has_passed()) {
      is_said = log.text().find("more in the last", n_before) != std::string::npos;
      std::this_thread::sleep_for(milliseconds(10));
    }
  }
  EXPECT_TRUE(is_said) << log.text();
}

}  // namespace
}  // namespace unisono::store
