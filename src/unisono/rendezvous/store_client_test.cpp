#include "unisono/rendezvous/store_client.h"

#include <poll.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/net/address.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/testing/two_rank_job.h"
#include "unisono/store/tcp_host.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

std::string message_of(const Config& config,
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
    const std::string hint = "192.0.2.77 is none of this machine's addresses: ";
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

// It may be mistyped, or come later, as in a cluster: nobody waits for long without a word.
TEST(ConnectToStore, ANameThatLeadsNowhereIsNamedAfterASecond) {
  Config config = config_with("secret");
  config.stall = std::chrono::hours(1);
  config.log_level = LogLevel::kInfo;
  LaunchInfo env = launch_info(1, 29500);
  env.master_addr = "no-such-host.invalid";
  ::testing::internal::CaptureStderr();
  (void)message_of(config, env, ErrorCode::kTimeout, Deadline::after(seconds(3)));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ContainsRegex("warning: rendezvous: rank 1 has tried for [0-9.]+ s"));
}

// Ends, and with it the connection of the first who comes.
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
                AllOf(HasSubstr("rank 1 was turned out of the store at MASTER_ADDR=127.0.0.1"),
                      HasSubstr("all 0 connections")));
  }
}

TEST(ConnectToStore, WhoIsNotLetInSaysWhere) {
  const store::TcpStoreHost server({.address = net::Address::loopback(0), .secret = "secret"});
  const std::uint16_t port = server.address().port();
  const std::string message =
      message_of(config_with(), launch_info(1, port), ErrorCode::kPeerLost, soon());
  EXPECT_THAT(message,
              HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
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
      AllOf(HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1, MASTER_PORT="),
            HasSubstr("another secret"),
            HasSubstr("UNISONO_SECRET")));
}

TEST(ConnectToStore, WhatIsNoStoreIsNamedWithThePlace) {
  const Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  Fd connection;  // Longer than the client looks at it.
  std::thread server([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, soon()));
    connection = net::accept_connection(listener.get()).fd;
    const std::string words = "220 mail.example.org ESMTP, at your service for a long time\r\n";
    net::write_all(connection.get(), std::as_bytes(std::span(words)), soon(), "mail");
  });
  EXPECT_THAT(
      message_of(config_with("secret"), launch_info(1, port), ErrorCode::kCorruptData, soon()),
      AllOf(HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1"),
            HasSubstr("something else may listen there")));
  server.join();
}

// As does a server that hangs, or another program's.
TEST(ConnectToStore, WhoAcceptsAndSaysNothingIsNamedWithWhatToDo) {
  const Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  const std::string where = "127.0.0.1:" + std::to_string(port);
  for (const char* secret : {"", "secret"}) {
    Config config = config_with(secret);
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
  Config config = config_with();
  config.stall = milliseconds(1);
  config.log_level = LogLevel::kInfo;
  ::testing::internal::CaptureStderr();
  (void)message_of(config, launch_info(1, port.number()), ErrorCode::kTimeout);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[unisono rank 1] warning: rendezvous: rank 1 has tried"));
}

}  // namespace
}  // namespace unisono::rendezvous
