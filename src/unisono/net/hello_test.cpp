#include "unisono/net/hello.h"

#include <sys/socket.h>

#include <chrono>
#include <thread>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/fd.h"

namespace unisono::net {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using State = Hello::State;

const HelloInfo kClientInfo{.job = "job-1", .purpose = "data", .rank = 3, .group = 7};
const HelloInfo kServerInfo{.job = "job-1", .purpose = "data", .rank = 0, .group = 7};

// Two sides that exchange data over a channel which may change bytes.
struct Talk {
  explicit Talk(const std::string& client_secret = "s", const std::string& server_secret = "s")
      : client(Hello::Side::kClient, client_secret, kClientInfo),
        server(Hello::Side::kServer, server_secret, kServerInfo) {}

  void run(std::size_t n_bytes_at_once = 1000) {
    for (int turn = 0; turn < 3; ++turn) {
      carry(client, server, to_server, bend_to_server, n_bytes_at_once);
      carry(server, client, to_client, bend_to_client, n_bytes_at_once);
    }
  }

  static void carry(Hello& from,
                    Hello& to,
                    Bytes& record,
                    const std::function<void(std::size_t, std::byte&)>& bend,
                    std::size_t n_bytes_at_once) {
    Bytes bytes = from.take_output();
    for (std::byte& byte : bytes) {
      bend(record.size(), byte);
      record.push_back(byte);
    }
    std::span<const std::byte> rest(bytes);
    while (!rest.empty() && to.state() == State::kRunning) {
      const auto part = rest.first(std::min(n_bytes_at_once, rest.size()));
      rest = rest.subspan(to.feed(part));
    }
  }

  Hello client;
  Hello server;
  Bytes to_server;
  Bytes to_client;
  std::function<void(std::size_t, std::byte&)> bend_to_server = [](std::size_t, std::byte&) {};
  std::function<void(std::size_t, std::byte&)> bend_to_client = [](std::size_t, std::byte&) {};
};

TEST(Hello, BothSidesLearnWhoTheOtherIsHoweverTheBytesAreCut) {
  for (const std::size_t n_bytes : {1U, 2U, 7U, 1000U}) {
    for (const char* secret : {"", "s", "a longer secret \xFF"}) {
      Talk talk(secret, secret);
      talk.run(n_bytes);
      ASSERT_EQ(talk.client.state(), State::kDone) << n_bytes;
      ASSERT_EQ(talk.server.state(), State::kDone) << n_bytes;
      EXPECT_EQ(talk.client.theirs(), kServerInfo);
      EXPECT_EQ(talk.server.theirs(), kClientInfo);
      EXPECT_EQ(talk.client.n_bytes_wanted(), 0U);
    }
  }
}

TEST(Hello, BytesAreAsDocumented) {
  Talk talk;
  talk.run();
  const std::string text(reinterpret_cast<const char*>(talk.to_server.data()),
                         talk.to_server.size());
  // Body: nonce 32, "job-1" 8 + 5, "data" 8 + 4, rank 4, group 4.
  EXPECT_EQ(text.substr(0, 12), std::string("\xF5unisono\x01\x00\x41\x00", 12));
  EXPECT_EQ(text.substr(44, 13), std::string("\x05\0\0\0\0\0\0\0job-1", 13));
  EXPECT_EQ(text.substr(57, 12), std::string("\x04\0\0\0\0\0\0\0data", 12));
  EXPECT_EQ(text.substr(69, 8), std::string("\x03\0\0\0\x07\0\0\0", 8));
  EXPECT_EQ(text.size(), 77U + 32U);
  EXPECT_EQ(talk.to_client.size(), 77U + 33U);
  EXPECT_EQ(talk.to_client[77], std::byte{0});
}

TEST(Hello, WhatFollowsIsLeftToTheCaller) {
  Talk talk;
  Talk::carry(talk.client, talk.server, talk.to_server, talk.bend_to_server, 1000);
  Talk::carry(talk.server, talk.client, talk.to_client, talk.bend_to_client, 1000);
  Bytes proof_and_more = talk.client.take_output();
  proof_and_more.resize(proof_and_more.size() + 5);
  EXPECT_EQ(talk.server.feed(proof_and_more), proof_and_more.size() - 5);
  EXPECT_EQ(talk.server.state(), State::kDone);
  EXPECT_EQ(talk.server.feed(proof_and_more), 0U);
}

TEST(Hello, AnotherSecretIsRefusedByBothSides) {
  for (const auto& [client, server] : {std::pair("s", "t"), {"", "t"}, {"s", ""}, {"s", "s2"}}) {
    Talk talk(client, server);
    talk.run();
    ASSERT_EQ(talk.server.state(), State::kFailed);
    ASSERT_EQ(talk.client.state(), State::kFailed);
    EXPECT_EQ(talk.server.error().code(), ErrorCode::kUnauthenticated);
    EXPECT_EQ(talk.client.error().code(), ErrorCode::kUnauthenticated);
    EXPECT_THAT(talk.client.error().what(), HasSubstr("UNISONO_SECRET"));
  }
}

TEST(Hello, AServerThatOnlyClaimsToKnowTheSecretIsRefused) {
  Talk talk("s", "t");
  // The server sends its own proof and "accepted", as if the client's proof had been correct.
  talk.bend_to_client = [](std::size_t at, std::byte& byte) {
    if (at == 77) {
      byte = std::byte{0};
    }
  };
  talk.run();
  ASSERT_EQ(talk.client.state(), State::kFailed);
  EXPECT_EQ(talk.client.error().code(), ErrorCode::kUnauthenticated);
}

TEST(Hello, EveryFlippedByteIsNoticedByBothSides) {
  for (const bool is_to_server : {true, false}) {
    const std::size_t n_bytes = is_to_server ? 109 : 110;
    for (std::size_t victim = 0; victim < n_bytes; ++victim) {
      Talk talk;
      (is_to_server ? talk.bend_to_server : talk.bend_to_client) = [victim](std::size_t at,
                                                                            std::byte& byte) {
        if (at == victim) {
          byte ^= std::byte{0x40};
        }
      };
      talk.run();
      EXPECT_NE(talk.client.state(), State::kDone) << is_to_server << ' ' << victim;
      const bool is_last_message = !is_to_server && victim >= 77;
      if (!is_last_message) {
        EXPECT_NE(talk.server.state(), State::kDone) << is_to_server << ' ' << victim;
      }
    }
  }
}

TEST(Hello, AReplayedConversationIsRefused) {
  Talk recorded;
  recorded.run();
  ASSERT_EQ(recorded.server.state(), State::kDone);

  Hello server(Hello::Side::kServer, "s", kServerInfo);
  std::span<const std::byte> bytes(recorded.to_server);
  bytes = bytes.subspan(server.feed(bytes.first(77)));
  (void)server.feed(bytes);
  ASSERT_EQ(server.state(), State::kFailed);
  EXPECT_EQ(server.error().code(), ErrorCode::kUnauthenticated);

  Hello client(Hello::Side::kClient, "s", kClientInfo);
  (void)client.feed(recorded.to_client);
  ASSERT_EQ(client.state(), State::kFailed);
  EXPECT_EQ(client.error().code(), ErrorCode::kUnauthenticated);
}

TEST(Hello, AReflectedProofIsRefused) {
  Hello client(Hello::Side::kClient, "s", kClientInfo);
  Bytes echo = client.take_output();
  (void)client.feed(echo);
  Bytes proof = client.take_output();
  proof.insert(proof.begin(), std::byte{0});
  (void)client.feed(proof);
  ASSERT_EQ(client.state(), State::kFailed);
  EXPECT_EQ(client.error().code(), ErrorCode::kUnauthenticated);
}

TEST(Hello, AnotherVersionIsNamedOnBothSides) {
  Talk talk;
  talk.bend_to_server = [](std::size_t at, std::byte& byte) {
    if (at == 8) {
      byte = std::byte{9};
    }
  };
  talk.bend_to_client = talk.bend_to_server;
  talk.run();
  for (const Hello* side : {&talk.client, &talk.server}) {
    ASSERT_EQ(side->state(), State::kFailed);
    EXPECT_EQ(side->error().code(), ErrorCode::kIncompatible);
    EXPECT_THAT(side->error().what(), HasSubstr("version 9, this one 1"));
  }
}

TEST(Hello, JunkAndOversizedBodiesAreRefused) {
  const auto failure_of = [](const std::string& text) {
    Hello server(Hello::Side::kServer, "s", kServerInfo);
    (void)server.feed(std::as_bytes(std::span(text)));
    EXPECT_EQ(server.state(), State::kFailed);
    return server.error().code();
  };
  EXPECT_EQ(failure_of("GET / HTTP/1.1\r\n"), ErrorCode::kCorruptData);
  EXPECT_EQ(failure_of(std::string("\xF5unisono\x01\x00\xFF\xFF", 12)), ErrorCode::kCorruptData);
  EXPECT_EQ(failure_of(std::string("\xF5unisono\x01\x00\x00\x00", 12)), ErrorCode::kCorruptData);
  std::string body = std::string("\xF5unisono\x01\x00\x38\x00", 12) + std::string(32, 'n');
  body += std::string("\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFF", 8) + std::string(16, '\0');
  EXPECT_EQ(failure_of(body), ErrorCode::kCorruptData);
}

TEST(Hello, TooLongNamesAreRefusedBeforeAnythingIsSent) {
  EXPECT_THROW(Hello(Hello::Side::kClient, "s", {.job = std::string(256, 'j'), .purpose = ""}),
               Error);
  EXPECT_THROW(Hello(Hello::Side::kClient, "s", {.job = "", .purpose = std::string(32, 'p')}),
               Error);
}

struct Outcome {
  std::optional<HelloInfo> client;
  std::optional<HelloInfo> server;
  std::string client_error;
  std::string server_error;
};

Outcome over_sockets(const std::string& client_secret, const std::string& server_secret) {
  std::array<int, 2> fds{};
  EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  const Fd left(fds[0]);
  const Fd right(fds[1]);
  const Deadline deadline = Deadline::after(seconds(20));
  Outcome outcome;
  std::thread server([&] {
    try {
      outcome.server = accept_hello(right.get(), server_secret, kServerInfo, deadline);
    } catch (const Error& error) {
      outcome.server_error = error.what();
    }
  });
  try {
    outcome.client = connect_hello(left.get(), client_secret, kClientInfo, deadline);
  } catch (const Error& error) {
    outcome.client_error = error.what();
  }
  server.join();
  return outcome;
}

TEST(BlockingHello, SucceedsOverSockets) {
  const Outcome outcome = over_sockets("s", "s");
  EXPECT_EQ(outcome.client, kServerInfo) << outcome.client_error;
  EXPECT_EQ(outcome.server, kClientInfo) << outcome.server_error;
}

TEST(BlockingHello, NamesThePeerWhenTheSecretIsWrong) {
  const Outcome outcome = over_sockets("s", "t");
  EXPECT_THAT(outcome.client_error, ::testing::StartsWith("hello (data) with process "));
  EXPECT_THAT(outcome.client_error, HasSubstr("another secret"));
  EXPECT_THAT(outcome.server_error, HasSubstr("did not authenticate"));
}

TEST(BlockingHello, ASilentPeerIsATimeout) {
  std::array<int, 2> fds{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, fds.data()), 0);
  const Fd left(fds[0]);
  const Fd right(fds[1]);
  try {
    accept_hello(right.get(), "s", kServerInfo, Deadline::after(milliseconds(5)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kTimeout);
  }
}

}  // namespace
}  // namespace unisono::net
