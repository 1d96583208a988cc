#include "unisono/rendezvous/connect_store.h"

#include <poll.h>
#include <unistd.h>

#include <cstdint>
#include <span>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/testing/ranks.h"
#include "unisono/store/hash_store.h"

#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

TEST(Meet, RanksReachTheStoreOfRank0WhoeverStartsFirst) {
  for (const char* secret : {"", "secret"}) {
    for (const bool is_rank_0_first : {true, false}) {
      const ReservedPort port;
      std::thread other([&] {
        StoreSession session =
            connect_store(config_with(secret), launch_info(1, port.number()), soon());
        EXPECT_EQ(session.host, nullptr);
        EXPECT_EQ(session.store->get("from 0", soon()), "hello");
        session.store->set("from 1", "done");
        // The reply means that the value has arrived.
        EXPECT_EQ(session.store->num_keys(), 2);
      });
      if (!is_rank_0_first) {
        EXPECT_THROW(
            (void)net::connect_tcp("127.0.0.1", port.number(), Deadline::after(milliseconds(1))),
            Error);
      }
      StoreSession session =
          connect_store(config_with(secret), launch_info(0, port.number()), soon());
      EXPECT_NE(session.host, nullptr);
      EXPECT_EQ(session.local_ip, "127.0.0.1");
      EXPECT_EQ(session.secret, secret);
      EXPECT_EQ(session.launch_info.world_size, 2);
      session.store->set("from 0", "hello");
      EXPECT_EQ(session.store->get("from 1", soon()), "done");
      other.join();
    }
  }
}

// The name may resolve to an address that other nodes reach, or not resolve at all. There is no
// secret.
TEST(Meet, RanksOfOneNodeMeetOnItsLoopback) {
  const ReservedPort port;
  LaunchInfo env = launch_info(0, port.number());
  env.master_addr = "node7.invalid";
  env.is_on_one_node = true;
  const StoreSession session = connect_store(config_with(), env, soon());
  EXPECT_EQ(session.local_ip, "127.0.0.1");
  EXPECT_EQ(session.host->address().ip(), "127.0.0.1");
  EXPECT_EQ(session.connect_again(milliseconds(1000))->add("n", 1), 1);
}

TEST(Meet, AStoreThatIsGoneIsNotWaitedFor) {
  const ReservedPort port;
  StoreSession session = connect_store(config_with(), launch_info(0, port.number()), soon());
  session.store.reset();
  session.host.reset();
  EXPECT_THAT([&] { (void)session.connect_again(seconds(20)); },
              test::throws_error(ErrorCode::kPeerLost, "(1 attempts); last: "));
}

TEST(Meet, TheLaunchersStoreIsUsedByRank0Too) {
  const store::TcpStoreHost agent({.address = net::Address::loopback(0), .secret = "secret"});
  LaunchInfo env = launch_info(0, agent.address().port());
  env.uses_agent_store = true;
  const StoreSession session = connect_store(config_with("secret"), env, soon());
  EXPECT_EQ(session.host, nullptr);
  EXPECT_EQ(session.store->add("n", 1), 1);
}

TEST(Meet, ASecondRank0IsOfTheFirstOnesMeeting) {
  const ReservedPort port;
  const LaunchInfo rank_0 = launch_info(0, port.number());
  const StoreSession first = connect_store(config_with(), rank_0, soon());
  EXPECT_FALSE(first.is_second_rank_0);
  RosterMember member;
  member.world_size = 2;
  member.address = "127.0.0.1";
  EXPECT_THROW((void)exchange_roster(*first.store, member, Deadline::after(milliseconds(2))),
               Error);
  const StoreSession twin = connect_store(config_with(), rank_0, soon());
  EXPECT_EQ(twin.host, nullptr);
  EXPECT_TRUE(twin.is_second_rank_0);
  EXPECT_EQ(twin.store->get("unisono/0/count", soon()), "1");
}

TEST(Meet, AJobOfAnotherNameFailsAloneOnEachRank) {
  for (const char* secret : {"", "secret"}) {
    const ReservedPort port;
    const base::Config config = config_with(secret);
    const auto of_job = [&](int rank, const char* job) {
      LaunchInfo named = launch_info(rank, port.number());
      named.job = job;
      return named;
    };
    const StoreSession first = connect_store(config, of_job(0, "STEP=1"), soon());
    const std::string place = "MASTER_PORT=" + std::to_string(port.number());
    for (const int rank : {0, 1}) {
      EXPECT_THAT(
          [&] { (void)connect_store(config, of_job(rank, "STEP=2"), soon()); },
          ThrowsMessage<Error>(AllOf(
              HasSubstr("rank " + std::to_string(rank) + " can't"),
              HasSubstr(place),
              HasSubstr("another job meets there, STEP=1, and this one is STEP=2; give them"))));
    }
    EXPECT_EQ(first.store->num_keys(), 0);
    for (const char* job : {"STEP=1", "OTHER=2", ""}) {
      EXPECT_EQ(connect_store(config, of_job(1, job), soon()).store->num_keys(), 0) << job;
    }
  }
}

TEST(Meet, ASecretIsNeededBeyondLoopback) {
  LaunchInfo env = launch_info(1, 29500);
  env.master_addr = "192.0.2.1";
  EXPECT_THAT([&] { (void)connect_store(config_with(), env, soon()); },
              ThrowsMessage<Error>(HasSubstr("UNISONO_SECRET")));
}

TEST(Meet, AGivenStoreBringsItsSecretAndItsNetwork) {
  const auto store = std::make_shared<store::HashStore>();
  const LaunchInfo second = launch_info(1, 29500);
  const StoreSession told =
      use_store({.store = store, .secret = "the store's", .local_ip = "10.1.2.3"},
                config_with("own"),
                second);
  EXPECT_EQ(told.secret, "the store's");
  EXPECT_EQ(told.local_ip, "10.1.2.3");
  EXPECT_EQ(told.store, store);
  EXPECT_EQ(told.connect_again(seconds(1)), store);
  const StoreSession none =
      use_store({.store = store, .secret = "", .local_ip = "10.1.2.3"}, config_with("own"), second);
  EXPECT_EQ(none.secret, "");
  EXPECT_EQ(none.local_ip, "127.0.0.1") << "without a secret it stays on this machine";
  EXPECT_EQ(use_store({.store = store}, config_with("own"), second).secret, "own");
}

StoreSession session_from(const char* ip, const char* secret) {
  StoreSession session;
  session.local_ip = ip;
  session.secret = secret;
  return session;
}

TEST(DataListener, IsWhereTheStoreWasReachedFromAndInThePortsThatAreWanted) {
  base::Config config;
  const Fd anywhere = listen_for_data(config, session_from("::1", ""));
  EXPECT_EQ(net::local_address(anywhere.get()).ip(), "::1");
  config.ports = PortRange{.first = 23'100, .last = 23'999};
  const Fd in_range = listen_for_data(config, session_from("127.0.0.1", ""));
  const net::Address address = net::local_address(in_range.get());
  EXPECT_EQ(address.ip(), "127.0.0.1");
  EXPECT_GE(address.port(), 23'100);
  EXPECT_LE(address.port(), 23'999);
}

TEST(DataListener, WithoutASecretItStaysOnLoopback) {
  base::Config config;
  config.interface = "no such interface";
  const Fd fd = listen_for_data(config, session_from("127.0.0.1", ""));
  EXPECT_EQ(net::local_address(fd.get()).ip(), "127.0.0.1");
  EXPECT_THAT([&] { (void)listen_for_data(config, session_from("127.0.0.1", "secret")); },
              ThrowsMessage<Error>(HasSubstr("there is no such interface")));
}

using ::testing::ContainsRegex;

std::string message_of(const base::Config& config,
                       const LaunchInfo& launch_info,
                       ErrorCode code,
                       Deadline deadline = Deadline::after(milliseconds(50))) {
  try {
    (void)connect_as_client(config, launch_info, config.secret, deadline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(ConnectToStore, Rank0SaysWhereItsOwnAddressIsNone) {
  const ReservedPort port;
  for (const int rank : {0, 1}) {
    LaunchInfo env = launch_info(rank, port.number());
    env.master_addr = "192.0.2.77";
    const std::string message = message_of(config_with("secret"), env, ErrorCode::kTimeout);
    const std::string hint = "192.0.2.77 is not an address of this machine: ";
    EXPECT_EQ(message.find(hint) != std::string::npos, rank == 0) << message;
  }
}

TEST(ConnectToStore, AMasterThatNeverComesIsATimeoutWithAddressAndReason) {
  const ReservedPort port;
  const std::string message =
      message_of(config_with(), launch_info(1, port.number()), ErrorCode::kTimeout);
  EXPECT_THAT(message, HasSubstr("rank 1 has tried for 0."));
  EXPECT_THAT(message,
              HasSubstr("MASTER_ADDR=127.0.0.1, MASTER_PORT=" + std::to_string(port.number())));
  EXPECT_THAT(message, HasSubstr("Connection refused (errno 111)"));
}

TEST(ConnectToStore, AWrongHostIsATimeoutThatNamesIt) {
  LaunchInfo env = launch_info(1, 29500);
  env.master_addr = "no-such-host.invalid";
  EXPECT_THAT(message_of(config_with("secret"), env, ErrorCode::kTimeout),
              HasSubstr("\"no-such-host.invalid\" (for port 29500) has no address"));
}

// The name may be mistyped, or may be registered later, as in a cluster. No rank waits for long
// without a message.
TEST(ConnectToStore, ANameThatLeadsNowhereIsNamedAfterASecond) {
  base::Config config = config_with("secret");
  config.stall = std::chrono::hours(1);
  config.log_level = LogLevel::kInfo;
  LaunchInfo env = launch_info(1, 29500);
  env.master_addr = "no-such-host.invalid";
  ::testing::internal::CaptureStderr();
  (void)message_of(config, env, ErrorCode::kTimeout, Deadline::after(seconds(3)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("warning: rendezvous: rank 1 has tried for [0-9.]+ s"));
}

// The store ends together with the first connection.
TEST(ConnectToStore, AStoreThatEndsBeforeItLetsARankInIsLost) {
  Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  std::thread server([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, soon()));
    const Fd connection = net::accept_connection(listener.get()).fd;
    listener.reset();
  });
  EXPECT_THAT(message_of(config_with("secret"), launch_info(1, port), ErrorCode::kPeerLost, soon()),
              HasSubstr("rank 1 has lost the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                        std::to_string(port) + ": rank 0, which serves it, has ended"));
  server.join();
}

TEST(ConnectToStore, AStoreThatTurnsARankOutHasNotEnded) {
  const store::TcpStoreHost server(
      {.address = net::Address::loopback(0), .secret = "secret", .limits = {.max_connections = 0}});
  const rendezvous::LaunchInfo rank_1 = launch_info(1, server.address().port());
  const auto store = connect_as_client(config_with("secret"), rank_1, "secret", soon());
  try {
    (void)store->num_keys();
    FAIL() << "a store that has no place has let a rank in";
  } catch (const Error& error) {
    const Error lost = lost_store(rank_1, error);
    EXPECT_EQ(lost.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(lost.what(),
                AllOf(HasSubstr("rank 1 was disconnected by the store at MASTER_ADDR=127.0.0.1"),
                      HasSubstr("all 0 connections")));
  }
}

TEST(ConnectToStore, WhoIsNotLetInSaysWhere) {
  const store::TcpStoreHost server({.address = net::Address::loopback(0), .secret = "secret"});
  const std::uint16_t port = server.address().port();
  const std::string message =
      message_of(config_with(), launch_info(1, port), ErrorCode::kPeerLost, soon());
  EXPECT_THAT(
      message,
      HasSubstr("rank 1 was not admitted to the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                std::to_string(port)));
  EXPECT_THAT(message, HasSubstr("UNISONO_SECRET"));
}

TEST(ConnectToStore, AnotherSecretIsUnauthenticatedAtOnce) {
  const store::TcpStoreHost server({.address = net::Address::loopback(0), .secret = "secret"});
  EXPECT_THAT(
      message_of(config_with("guess"),
                 launch_info(1, server.address().port()),
                 ErrorCode::kUnauthenticated,
                 soon()),
      AllOf(
          HasSubstr("rank 1 was not admitted to the store at MASTER_ADDR=127.0.0.1, MASTER_PORT="),
          HasSubstr("another secret"),
          HasSubstr("UNISONO_SECRET")));
}

TEST(ConnectToStore, WhatIsNoStoreIsNamedWithThePlace) {
  const Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  Fd connection;  // Must live longer than the client's read.
  std::thread server([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, soon()));
    connection = net::accept_connection(listener.get()).fd;
    const std::string words = "220 mail.example.org ESMTP, at your service for a long time\r\n";
    net::write_all(connection.get(), std::as_bytes(std::span(words)), soon(), "mail");
  });
  EXPECT_THAT(
      message_of(config_with("secret"), launch_info(1, port), ErrorCode::kCorruptData, soon()),
      AllOf(HasSubstr("rank 1 was not admitted to the store at MASTER_ADDR=127.0.0.1"),
            HasSubstr("something else may listen there")));
  server.join();
}

// A server that hangs and a server of another program behave this way.
TEST(ConnectToStore, WhoAcceptsAndSaysNothingIsNamedWithWhatToDo) {
  const Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  const std::string where = "127.0.0.1:" + std::to_string(port);
  for (const char* secret : {"", "secret"}) {
    base::Config config = config_with(secret);
    config.stall = milliseconds(300);
    config.log_level = LogLevel::kInfo;
    ::testing::internal::CaptureStderr();
    const std::string last = message_of(
        config, launch_info(1, port), ErrorCode::kTimeout, Deadline::after(milliseconds(500)));
    const std::string first = ::testing::internal::GetCapturedStderr();
    for (const std::string& message : {first, last}) {
      EXPECT_THAT(
          message,
          AllOf(HasSubstr("which rank 0 serves: " + where +
                          " accepts connections, but has not answered as a store does for 0."),
                HasSubstr("; process " + std::to_string(::getpid()) + " ("),
                HasSubstr(") listens there: if that is not rank 0, end it or give the job another "
                          "port; if it is")));
    }
  }
}

TEST(ConnectToStore, ItSaysThatItStillWaits) {
  const ReservedPort port;
  base::Config config = config_with();
  config.stall = milliseconds(1);
  config.log_level = LogLevel::kInfo;
  ::testing::internal::CaptureStderr();
  (void)message_of(config, launch_info(1, port.number()), ErrorCode::kTimeout);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[unisono rank 1] warning: rendezvous: rank 1 has tried"));
}

}  // namespace
}  // namespace unisono::rendezvous
