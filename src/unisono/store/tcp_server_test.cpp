#include "unisono/store/tcp_server.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <functional>
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
#include "unisono/net/hello.h"
#include "unisono/net/socket.h"
#include "unisono/store/protocol.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/stores.h"

#include "support/file_limit.h"
#include "support/temporary_folder.h"

namespace unisono::store {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::client_of;
using ::testing::HasSubstr;
using testing::quiet;
using testing::RawClient;
using testing::soon;

TEST(TcpStoreServer, RefusesToServeOtherMachinesWithoutASecret) {
  net::EventLoop loop;
  TcpServerOptions options = quiet();
  for (const char* ip : {"0.0.0.0", "::", "10.0.0.1"}) {
    options.address = *net::Address::parse(ip, 0);
    try {
      const TcpStoreServer server(loop, options);
      FAIL() << ip;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_THAT(error.what(), HasSubstr("UNISONO_SECRET"));
    }
  }
  options.address = *net::Address::parse("0.0.0.0", 0);
  options.insecure = true;
  EXPECT_NE(TcpStoreServer(loop, options).address().port(), 0);
  options.insecure = false;
  options.secret = "s";
  EXPECT_NE(TcpStoreServer(loop, options).address().port(), 0);
}

TEST(TcpStoreServer, SetsWhatAClientThatEndsHasLeft) {
  for (const char* secret : {"", "secret"}) {
    const TcpStoreHost host(quiet(secret));
    TcpStore other(client_of(host.address(), secret), soon());
    auto client = std::make_unique<TcpStore>(client_of(host.address(), secret), soon());
    client->set_at_end("replaced", "first");
    client->set_at_end("left", "second");
    EXPECT_EQ(other.try_get("left"), std::nullopt);
    client.reset();
    EXPECT_EQ(other.get("left", soon()), "second");
    EXPECT_EQ(other.try_get("replaced"), std::nullopt);

    TcpStore(client_of(host.address(), secret), soon()).set_at_end("left", "third");
    TcpStore taking_back(client_of(host.address(), secret), soon());
    taking_back.set_at_end("taken back", "value");
    taking_back.set_at_end("taken back", "");
    EXPECT_EQ(taking_back.num_keys(), 1);
    EXPECT_EQ(other.get("left", soon()), "second");
  }
}

TEST(TcpStoreServer, ItsJobsNameFitsIntoAHello) {
  net::EventLoop loop;
  TcpServerOptions options = quiet();
  options.job.assign(net::kMaxJobBytes, 'j');
  EXPECT_NE(TcpStoreServer(loop, options).address().port(), 0);
  options.job += 'j';
  EXPECT_THROW(TcpStoreServer(loop, options), Error);
}

TEST(TcpStoreServer, NotesWhomItHasTurnedAwayWhereItIsWanted) {
  for (const bool is_wanted : {false, true}) {
    TcpServerOptions options = quiet("secret");
    options.notes_turned_away = is_wanted;
    const TcpStoreHost host(options);
    TcpStore store(client_of(host.address(), "secret"), soon());
    EXPECT_EQ(store.num_keys(), 0);
    for (int i = 0; i < 2; ++i) {
      EXPECT_THROW(TcpStore(client_of(host.address(), "guess"), soon()), Error);
    }
    // A client that only probes the port is not rejected, and neither is an accepted client.
    (void)net::connect_tcp(host.address(), soon());
    EXPECT_EQ(TcpStore(client_of(host.address(), "secret"), soon()).num_keys(), is_wanted ? 1 : 0);
    if (is_wanted) {
      EXPECT_THAT(store.get(kTurnedAwayKey, soon()),
                  ::testing::MatchesRegex("the store has rejected 2 connections, the last from "
                                          "127.0.0.1:[0-9]+: .*did not authenticate .*secret.*"));
    }
  }
}

// Port scanners connect often and must not hide a rank with another secret.
TEST(TcpStoreServer, NotesThoseThatMayBeARankFirst) {
  TcpServerOptions options = quiet("secret");
  options.notes_turned_away = true;
  const TcpStoreHost host(options);
  EXPECT_THROW(TcpStore(client_of(host.address(), "guess"), soon()), Error);
  EXPECT_THROW(TcpStore(client_of(host.address(), ""), soon()), Error);
  for (int i = 0; i < 3; ++i) {
    RawClient scanner(host.address());
    scanner.send({std::byte{'G'}, std::byte{'E'}, std::byte{'T'}});
    EXPECT_TRUE(scanner.is_dropped());
  }
  TcpStore store(client_of(host.address(), "secret"), soon());
  EXPECT_THAT(store.get(kTurnedAwayKey, soon()),
              ::testing::MatchesRegex(
                  "the store has rejected a connection from [^ ]+: .*did not authenticate .*; "
                  "2 connections, the last from [^ ]+: it is a plain client.*; "
                  "3 connections, the last from [^ ]+: it does not use a store's protocol"));
}

// No other client sends requests to the store at this time.
TEST(TcpStoreServer, WhoWaitsForTheNoteHearsOfAClientThatSaysNothing) {
  TcpServerOptions options = quiet("secret");
  options.notes_turned_away = true;
  options.admission_timeout = milliseconds(300);
  const TcpStoreHost host(options);
  TcpStore store(client_of(host.address(), "secret"), soon());
  const RawClient silent(host.address());
  EXPECT_THAT(store.get(kTurnedAwayKey, soon()),
              HasSubstr("it did not send its first request in time"));
}

TEST(TcpStoreServer, APortInUseIsAnErrorAtOnce) {
  const TcpStoreHost first(quiet());
  TcpServerOptions options = quiet();
  options.address = first.address();
  try {
    const TcpStoreHost second(options);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in use by process"));
  }
}

TEST(TcpStoreServer, WorksOnALoopThatItsOwnerRuns) {
  net::EventLoop loop;
  {
    TcpStoreServer server(loop, quiet());
    RawClient client(server.address());
    client.send_validate();
    const Deadline deadline = soon();
    while (server.n_connections() == 0 && !deadline.has_passed()) {
      loop.run_once(deadline);
    }
    EXPECT_EQ(server.n_connections(), 1U);
  }
  // The loop has no remaining handler of the server.
  loop.run_once(Deadline::after(milliseconds(0)));
}

TEST(TcpStoreServer, AWrongClientIsDroppedAloneAndOthersAreServed) {
  const TcpStoreHost host(quiet());
  TcpStore good(client_of(host.address()), soon());

  RawClient http(host.address());
  const std::string request = "GET / HTTP/1.1\r\n\r\n";
  const auto bytes = std::as_bytes(std::span(request));
  http.send({bytes.begin(), bytes.end()});
  EXPECT_TRUE(http.is_dropped());

  RawClient oversized(host.address());
  oversized.send_validate();
  ByteWriter claim = begin(Opcode::kGet);
  claim.put(std::uint64_t{1} << 60);
  oversized.send(claim.bytes());
  EXPECT_TRUE(oversized.is_dropped());

  good.set("k", "1");
  EXPECT_EQ(good.get("k", soon()), "1");
}

TEST(TcpStoreServer, AClientInTheMiddleOfARequestHoldsNobodyUp) {
  const TcpStoreHost host(quiet());
  RawClient slow(host.address());
  slow.send_validate();
  std::vector<std::byte> half = begin(Opcode::kSet, "slow", std::string(1000, 'x')).bytes();
  const std::vector<std::byte> rest(half.end() - 500, half.end());
  half.resize(half.size() - 500);
  slow.send(half);

  TcpStore good(client_of(host.address()), soon());
  good.set("k", "1");
  EXPECT_EQ(good.get("k", soon()), "1");
  EXPECT_EQ(good.try_get("slow"), std::nullopt);
  slow.send(rest);
  EXPECT_EQ(good.get("slow", soon()), std::string(1000, 'x'));
}

TEST(TcpStoreServer, ALargeReplyWaitsForASlowReader) {
  const TcpStoreHost host(quiet());
  TcpStore store(client_of(host.address()), soon());
  std::vector<Store::KeyValue> pairs;
  std::vector<std::string> keys;
  for (int i = 0; i < 5; ++i) {
    keys.push_back("k" + std::to_string(i));
    pairs.emplace_back(keys.back(), std::string(5'000'000, static_cast<char>('a' + i)));
  }
  store.multi_set(pairs);
  const std::vector<std::string> values = store.multi_get(keys, soon());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    EXPECT_TRUE(values[i] == pairs[i].second) << i;
  }
}

TEST(TcpStoreServer, WhoDoesNotIntroduceItselfIsDropped) {
  TcpServerOptions options = quiet("secret");
  options.admission_timeout = milliseconds(1);
  const TcpStoreHost host(options);
  RawClient silent(host.address());
  EXPECT_TRUE(silent.is_dropped());
}

TEST(TcpStoreServer, WithASecretAPlainClientIsDroppedAndToldWhy) {
  const TcpStoreHost host(quiet("secret"));
  try {
    const TcpStore store(client_of(host.address()), soon());
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("UNISONO_SECRET"));
  }
}

bool serves_plain(const PlainClients& allowed) {
  TcpServerOptions options = quiet("secret");
  options.plain_clients = allowed;
  const TcpStoreHost host(options);
  try {
    TcpStore store(client_of(host.address()), soon());
    return store.add("n", 1) == 1;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    return false;
  }
}

TEST(TcpStoreServer, PlainClientsOfItsUserOrANetworkAreServedWhereThatIsAllowed) {
  EXPECT_FALSE(serves_plain({}));
  EXPECT_TRUE(serves_plain({.own_user = true}));
  EXPECT_TRUE(serves_plain({.networks = {*net::Network::parse("127.0.0.0/8")}}));
  EXPECT_FALSE(serves_plain({.networks = {*net::Network::parse("10.0.0.0/8")}}));
}

// Returns the number of reply bytes that a client of user "nobody" gets after a plain introduction.
std::string bytes_for_nobody(std::uint16_t port) {
  const std::string command =
      "setpriv --reuid 65534 --clear-groups bash -c 'exec 3<>/dev/tcp/127.0.0.1/" +
      std::to_string(port) +
      " && printf \"\\x00\\xce\\xf7\\x85\\x3c\\x0d\\x01\\x02\\x03\\x04\" >&3 && head -c 4 <&3 | wc "
      "-c'";
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(::popen(command.c_str(), "r"), &::pclose);
  std::array<char, 64> line{};
  return std::fgets(line.data(), line.size(), pipe.get()) == nullptr ? "nothing" : line.data();
}

TEST(TcpStoreServer, PlainClientsOfAnotherUserAreDropped) {
  if (::geteuid() != 0) {
    GTEST_SKIP() << "only root can become another user";
  }
  TcpServerOptions options = quiet("secret");
  options.plain_clients = {.own_user = true};
  const TcpStoreHost host(options);
  EXPECT_EQ(bytes_for_nobody(host.address().port()), "0\n");
  options.plain_clients = {.networks = {*net::Network::parse("127.0.0.1")}};
  const TcpStoreHost open_host(options);
  EXPECT_EQ(bytes_for_nobody(open_host.address().port()), "4\n");
}

TEST(TcpStoreServer, AnotherSecretIsUnauthenticated) {
  for (const char* server_secret : {"secret", ""}) {
    const TcpStoreHost host(quiet(server_secret));
    try {
      const TcpStore store(client_of(host.address(), "guess"), soon());
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kUnauthenticated);
      EXPECT_THAT(error.what(), HasSubstr(host.address().to_string()));
    }
  }
}

using testing::message_of;
using ::testing::ThrowsMessage;

// Limits of a server: the treatment of clients that exceed a limit, and the log.
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

// Returns a host like in a process that may open few files.
std::unique_ptr<TcpStoreHost> host_of_few(const TcpServerOptions& options) {
  const test::FileLimit limit(128);
  return std::make_unique<TcpStoreHost>(options);
}

TEST(TcpLimits, AThousandStrangersKeepAClientOutForAMoment) {
  const auto host = host_of_few(quiet("secret"));
  // The number of files is also limited in this process.
  std::vector<std::unique_ptr<RawClient>> silent(600);
  for (auto& client : silent) {
    client = std::make_unique<RawClient>(host->address());
  }
  // The silent clients, with two seconds each, would take 37 s.
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

// Returns options of a client with higher limits, so that requests exceed only the server's limits.
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
              HasSubstr("the value of \"no text\" is not a decimal number: \"??\""));
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
  options.logger = base::Logger("store");
  ::testing::internal::CaptureStderr();
  {
    const TcpStoreHost host(options);
    be_strangers(host.address(), 110);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log,
              ::testing::ContainsRegex("warning: and 10 more in the last [0-9.]+ s, the last: "
                                       "store 127.0.0.1:[0-9]+: dropped 127.0.0.1:[0-9]+: it does "
                                       "not use a store's protocol\n"));
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 101);
}

// Redirects stderr to a file during the object's lifetime.
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
  options.logger = base::Logger("store");
  options.log_period = milliseconds(500);
  const LogFile log;
  const TcpStoreHost host(options);
  const Deadline deadline = soon();
  bool is_said = false;
  // On a slow machine a log period may end between the connections.
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
