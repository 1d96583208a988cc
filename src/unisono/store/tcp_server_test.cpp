#include "unisono/store/tcp_server.h"

#include <unistd.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/net/address.h"
#include "unisono/net/event_loop.h"
#include "unisono/net/hello.h"
#include "unisono/net/network.h"
#include "unisono/net/socket.h"
#include "unisono/store/messages.h"
#include "unisono/store/protocol.h"
#include "unisono/store/tcp_host.h"
#include "unisono/store/tcp_store.h"
#include "unisono/store/testing/stores.h"
#include "unisono/store/testing/tcp.h"

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
    // Who looks whether somebody listens here, and goes, is not turned away, nor who was let in.
    (void)net::connect_tcp(host.address(), soon());
    EXPECT_EQ(TcpStore(client_of(host.address(), "secret"), soon()).num_keys(), is_wanted ? 1 : 0);
    if (is_wanted) {
      EXPECT_THAT(store.get(kTurnedAwayKey, soon()),
                  ::testing::MatchesRegex("the store has turned away 2 connections, the last from "
                                          "127.0.0.1:[0-9]+: .*did not prove .*secret.*"));
    }
  }
}

// Who scans ports comes often, and must not hide a rank with another secret.
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
                  "the store has turned away a connection from [^ ]+: .*did not prove .*; "
                  "2 connections, the last from [^ ]+: it is a plain client.*; "
                  "3 connections, the last from [^ ]+: it speaks no store's protocol"));
}

// Nobody else talks to the store then.
TEST(TcpStoreServer, WhoWaitsForTheNoteHearsOfAClientThatSaysNothing) {
  TcpServerOptions options = quiet("secret");
  options.notes_turned_away = true;
  options.admission_timeout = milliseconds(300);
  const TcpStoreHost host(options);
  TcpStore store(client_of(host.address(), "secret"), soon());
  const RawClient silent(host.address());
  EXPECT_THAT(store.get(kTurnedAwayKey, soon()), HasSubstr("it did not introduce itself in time"));
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
  // Nothing of the server is left in the loop.
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

// How many bytes of an answer a client of user "nobody" gets to a plain introduction.
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

}  // namespace
}  // namespace unisono::store
