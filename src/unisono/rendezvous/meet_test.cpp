#include "unisono/rendezvous/meet.h"

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
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
#include "unisono/net/interfaces.h"
#include "unisono/net/io.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/env.h"
#include "unisono/rendezvous/exchange_roster.h"
#include "unisono/rendezvous/roster.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/prefix_store.h"
#include "unisono/store/tcp_host.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::AllOf;
using ::testing::HasSubstr;

Deadline soon() {
  return Deadline::after(seconds(30));
}

Config config_with(const std::string& secret = "") {
  Config config;
  config.secret = secret;
  config.stall = seconds(5);
  config.log_level = LogLevel::kError;
  return config;
}

// A port that nobody else gets while this lives, and that a server can still listen on.
class ReservedPort {
 public:
  ReservedPort() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const int on = 1;
    EXPECT_EQ(::setsockopt(fd_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
    const net::Address any = *net::Address::parse("127.0.0.1", 0);
    EXPECT_EQ(::bind(fd_.get(), any.data(), any.size()), 0);
  }

  [[nodiscard]] std::uint16_t number() const { return net::local_address(fd_.get()).port(); }

 private:
  Fd fd_;
};

Assignment assignment(int rank, std::uint16_t port) {
  return {.master_addr = "127.0.0.1", .master_port = port, .rank = rank, .world_size = 2};
}

std::string message_of(const Config& config,
                       const Assignment& env,
                       ErrorCode code,
                       Deadline deadline = Deadline::after(milliseconds(50))) {
  try {
    (void)meet(config, env, deadline);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code) << error.what();
    return error.what();
  }
  return "no error";
}

TEST(Meet, RanksReachTheStoreOfRank0WhoeverStartsFirst) {
  for (const char* secret : {"", "secret"}) {
    for (const bool is_rank_0_first : {true, false}) {
      const ReservedPort port;
      std::thread other([&] {
        Meeting meeting = meet(config_with(secret), assignment(1, port.number()), soon());
        EXPECT_EQ(meeting.host, nullptr);
        EXPECT_EQ(meeting.store->get("from 0", soon()), "hello");
        meeting.store->set("from 1", "done");
        // Its answer means that the value has arrived.
        EXPECT_EQ(meeting.store->num_keys(), 2);
      });
      if (!is_rank_0_first) {
        EXPECT_THROW(
            (void)net::connect_tcp("127.0.0.1", port.number(), Deadline::after(milliseconds(1))),
            Error);
      }
      Meeting meeting = meet(config_with(secret), assignment(0, port.number()), soon());
      EXPECT_NE(meeting.host, nullptr);
      EXPECT_EQ(meeting.local_ip, "127.0.0.1");
      EXPECT_EQ(meeting.secret, secret);
      EXPECT_EQ(meeting.assignment.world_size, 2);
      meeting.store->set("from 0", "hello");
      EXPECT_EQ(meeting.store->get("from 1", soon()), "done");
      other.join();
    }
  }
}

// Its name may lead to an address that others reach, or nowhere; and there is no secret.
TEST(Meet, RanksOfOneNodeMeetOnItsLoopback) {
  const ReservedPort port;
  Assignment env = assignment(0, port.number());
  env.master_addr = "node7.invalid";
  env.is_on_one_node = true;
  const Meeting meeting = meet(config_with(), env, soon());
  EXPECT_EQ(meeting.local_ip, "127.0.0.1");
  EXPECT_EQ(meeting.host->address().ip(), "127.0.0.1");
  EXPECT_EQ(meeting.connect_again(milliseconds(1000))->add("n", 1), 1);
}

TEST(Meet, AStoreThatIsGoneIsNotWaitedFor) {
  const ReservedPort port;
  Meeting meeting = meet(config_with(), assignment(0, port.number()), soon());
  meeting.store.reset();
  meeting.host.reset();
  try {
    (void)meeting.connect_again(seconds(20));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kPeerLost);
    EXPECT_THAT(error.what(), HasSubstr("(1 attempts); last: "));
  }
}

TEST(Meet, TheLaunchersStoreIsUsedByRank0Too) {
  const store::TcpStoreHost agent(
      {.address = *net::Address::parse("127.0.0.1", 0), .secret = "secret"});
  Assignment env = assignment(0, agent.address().port());
  env.uses_agent_store = true;
  const Meeting meeting = meet(config_with("secret"), env, soon());
  EXPECT_EQ(meeting.host, nullptr);
  EXPECT_EQ(meeting.store->add("n", 1), 1);
}

TEST(Meet, APortInUseIsAnErrorOfRank0AtOnce) {
  const Fd other = net::listen_tcp(*net::Address::parse("127.0.0.1", 0));
  const std::uint16_t port = net::local_address(other.get()).port();
  for (const char* secret : {"", "secret"}) {
    EXPECT_THAT(message_of(config_with(secret), assignment(0, port), ErrorCode::kSystem),
                HasSubstr("port " + std::to_string(port) + " is in use by process "));
  }
}

TEST(Meet, APortInUseIsSaidToBeAnotherJobsWithThePlace) {
  const Fd other = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(other.get()).port();
  EXPECT_THAT(message_of(config_with(), assignment(0, port), ErrorCode::kSystem),
              AllOf(HasSubstr("rendezvous: rank 0 can't serve the store at MASTER_ADDR=127.0.0.1, "
                              "MASTER_PORT=" +
                              std::to_string(port)),
                    HasSubstr("another job may use the port")));
}

// The first one's ranks hear nothing of it.
TEST(Meet, ASecondJobAtThePortFailsAlone) {
  const ReservedPort port;
  const Config config = config_with();
  Meeting first = meet(config, assignment(0, port.number()), soon());
  Member member;
  member.world_size = 2;
  member.address = "127.0.0.1";
  EXPECT_THROW((void)exchange_roster(*first.store, member, Deadline::after(milliseconds(2))),
               Error);
  EXPECT_FALSE(first.is_second_rank_0);
  const Meeting twin = meet(config, assignment(0, port.number()), soon());
  EXPECT_EQ(twin.host, nullptr);
  EXPECT_TRUE(twin.is_second_rank_0);
  Assignment other = assignment(0, port.number());
  other.world_size = 3;
  EXPECT_THAT([&] { (void)meet(config, other, soon()); },
              ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("is in use by process "),
                                                    HasSubstr("another job may use the port"))));
  EXPECT_EQ(first.store->get("unisono/0/count", soon()), "1");
}

TEST(Meet, ASecondRank0IsLookedForWhereTheRanksMeet) {
  const ReservedPort port;
  const Config config = config_with();
  const Assignment rank_0 = assignment(0, port.number());
  const Meeting first = meet(config, rank_0, soon(), {.part = "part"});
  store::PrefixStore part("part", first.store);
  Member member;
  member.world_size = 2;
  member.address = "127.0.0.1";
  EXPECT_THROW((void)exchange_roster(part, member, Deadline::after(milliseconds(2))), Error);
  EXPECT_TRUE(meet(config, rank_0, soon(), {.part = "part"}).is_second_rank_0);
  for (const MeetingKeys& keys : {MeetingKeys{}, {.part = "part", .generation = 1}}) {
    EXPECT_THROW((void)meet(config, rank_0, Deadline::after(milliseconds(50)), keys), Error);
  }
}

TEST(Meet, AJobOfAnotherNameFailsAloneOnEachRank) {
  for (const char* secret : {"", "secret"}) {
    const ReservedPort port;
    const Config config = config_with(secret);
    const auto of_job = [&](int rank, const char* job) {
      Assignment named = assignment(rank, port.number());
      named.job = job;
      return named;
    };
    const Meeting first = meet(config, of_job(0, "STEP=1"), soon());
    const std::string place = "MASTER_PORT=" + std::to_string(port.number());
    for (const int rank : {0, 1}) {
      EXPECT_THAT(
          [&] { (void)meet(config, of_job(rank, "STEP=2"), soon()); },
          ::testing::ThrowsMessage<Error>(AllOf(
              HasSubstr("rank " + std::to_string(rank) + " can't"),
              HasSubstr(place),
              HasSubstr("another job meets there, STEP=1, and this one is STEP=2; give them"))));
    }
    EXPECT_EQ(first.store->num_keys(), 0);
    for (const char* job : {"STEP=1", "OTHER=2", ""}) {
      EXPECT_EQ(meet(config, of_job(1, job), soon()).store->num_keys(), 0) << job;
    }
  }
}

TEST(Meet, Rank0SaysWhereItsOwnAddressIsNone) {
  const ReservedPort port;
  for (const int rank : {0, 1}) {
    Assignment env = assignment(rank, port.number());
    env.master_addr = "192.0.2.77";
    const std::string message = message_of(config_with("secret"), env, ErrorCode::kTimeout);
    const std::string hint = "192.0.2.77 is none of this machine's addresses: ";
    EXPECT_EQ(message.find(hint) != std::string::npos, rank == 0) << message;
  }
}

// One that other machines can reach; "" where there is none.
std::string outer_ip() {
  for (const net::Interface& interface : net::interfaces()) {
    for (const net::Address& address : interface.addresses) {
      if (!address.is_loopback() && address.family() == AF_INET) {
        return address.ip();
      }
    }
  }
  return "";
}

TEST(Meet, TheStoreIsServedAtTheMastersAddressIfThisMachineHasIt) {
  for (const bool has_secret : {false, true}) {
    for (const char* host : {"127.0.0.1", "localhost", "::1", "[::1]"}) {
      const net::Address address = listen_address(host, 29500, has_secret);
      EXPECT_TRUE(address.is_loopback()) << host;
      EXPECT_EQ(address.port(), 29500);
    }
  }
  EXPECT_EQ(listen_address("192.0.2.77", 29500, true), net::Address::any(AF_INET, 29500));
  const std::string ip = outer_ip();
  if (ip.empty()) {
    GTEST_SKIP() << "this machine has loopback only";
  }
  EXPECT_EQ(listen_address(ip, 29500, true), net::Address::parse(ip, 29500));
  const ReservedPort port;
  Assignment env = assignment(0, port.number());
  env.master_addr = ip;
  const Meeting meeting = meet(config_with("secret"), env, soon());
  EXPECT_EQ(meeting.host->address().ip(), ip);
  EXPECT_EQ(meeting.local_ip, ip);
  EXPECT_TRUE(net::is_refused(net::Address::loopback(port.number()), soon()));
}

// It may come as one of either family.
TEST(Meet, AtANameThatLeadsNowhereYetTheStoreIsServedAtBothFamilies) {
  const ReservedPort port;
  const Fd listener = net::listen_tcp(listen_address("no-such-host.invalid", port.number(), true));
  EXPECT_TRUE(net::connect_tcp("127.0.0.1", port.number(), soon()).is_open());
  if (net::any_of_both_families(0).family() == AF_INET ||
      net::find_obstacle(*net::Address::parse("::1", port.number()), soon()) == EADDRNOTAVAIL) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  EXPECT_TRUE(net::connect_tcp("::1", port.number(), soon()).is_open());
}

TEST(Meet, APlaceIsDescribedByWhoGaveIt) {
  Assignment env = assignment(0, 29500);
  EXPECT_EQ(describe_place(env), "MASTER_ADDR=127.0.0.1, MASTER_PORT=29500");
  env.place_source = "init_method file:///tmp/job";
  EXPECT_EQ(describe_place(env), "127.0.0.1:29500 (init_method file:///tmp/job)");
  env.master_addr = "::1";
  EXPECT_EQ(describe_place(env), "[::1]:29500 (init_method file:///tmp/job)");
}

TEST(Meet, APortThatBecomesFreeIsServed) {
  Fd other = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(other.get()).port();
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(100));  // Rank 0 has found the port in use by then.
    other.reset();
  });
  const Meeting meeting = meet(config_with(), assignment(0, port), soon());
  ends.join();
  EXPECT_NE(meeting.host, nullptr);
  EXPECT_FALSE(meeting.is_second_rank_0);
}

// Others may come by another of its addresses.
TEST(Meet, TheStoreIsServedAtAllAddressesWhereThereAreMany) {
  const ReservedPort port;
  Assignment env = assignment(0, port.number());
  env.has_many_addresses = true;
  EXPECT_TRUE(meet(config_with("secret"), env, soon()).host->address().is_loopback());
  env.master_addr = outer_ip();
  if (env.master_addr.empty()) {
    GTEST_SKIP() << "this machine has loopback only";
  }
  EXPECT_TRUE(meet(config_with("secret"), env, soon()).host->address().is_wildcard());
}

TEST(Meet, AMasterThatNeverComesIsATimeoutWithAddressAndReason) {
  const ReservedPort port;
  const std::string message =
      message_of(config_with(), assignment(1, port.number()), ErrorCode::kTimeout);
  EXPECT_THAT(message, HasSubstr("rank 1 has tried for 0."));
  EXPECT_THAT(message,
              HasSubstr("MASTER_ADDR=127.0.0.1, MASTER_PORT=" + std::to_string(port.number())));
  EXPECT_THAT(message, HasSubstr("Connection refused (errno 111)"));
}

TEST(Meet, AWrongHostIsATimeoutThatNamesIt) {
  Assignment env = assignment(1, 29500);
  env.master_addr = "no-such-host.invalid";
  EXPECT_THAT(message_of(config_with("secret"), env, ErrorCode::kTimeout),
              HasSubstr("\"no-such-host.invalid\" (for port 29500) has no address"));
}

// It may be mistyped, or come later, as in a cluster: nobody waits for long without a word.
TEST(Meet, ANameThatLeadsNowhereIsNamedAfterASecond) {
  Config config = config_with("secret");
  config.stall = std::chrono::hours(1);
  config.log_level = LogLevel::kInfo;
  Assignment env = assignment(1, 29500);
  env.master_addr = "no-such-host.invalid";
  ::testing::internal::CaptureStderr();
  EXPECT_THROW((void)meet(config, env, Deadline::after(seconds(3))), Error);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              ::testing::ContainsRegex("warning: rendezvous: rank 1 has tried for [0-9.]+ s"));
}

// Ends, and with it the connection of the first who comes.
TEST(Meet, AStoreThatEndsBeforeItLetsARankInIsLost) {
  Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  std::thread server([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, soon()));
    const Fd connection = net::accept_connection(listener.get()).fd;
    listener.reset();
  });
  EXPECT_THAT(message_of(config_with("secret"), assignment(1, port), ErrorCode::kPeerLost, soon()),
              HasSubstr("rank 1 has lost the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                        std::to_string(port) + ": rank 0, which serves it, has ended"));
  server.join();
}

TEST(Meet, WhoIsNotLetInSaysWhere) {
  const ReservedPort port;
  const Meeting meeting = meet(config_with("secret"), assignment(0, port.number()), soon());
  const std::string message =
      message_of(config_with(), assignment(1, port.number()), ErrorCode::kPeerLost, soon());
  EXPECT_THAT(message,
              HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1, MASTER_PORT=" +
                        std::to_string(port.number())));
  EXPECT_THAT(message, HasSubstr("UNISONO_SECRET"));
}

TEST(Meet, ASecretIsNeededBeyondLoopback) {
  Assignment env = assignment(1, 29500);
  env.master_addr = "192.0.2.1";
  EXPECT_THAT(message_of(config_with(), env, ErrorCode::kInvalidArgument),
              HasSubstr("UNISONO_SECRET"));
}

TEST(Meet, AnotherSecretIsUnauthenticatedAtOnce) {
  const ReservedPort port;
  const Meeting meeting = meet(config_with("secret"), assignment(0, port.number()), soon());
  EXPECT_THAT(
      message_of(config_with("guess"), assignment(1, port.number()), ErrorCode::kUnauthenticated),
      AllOf(HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1, MASTER_PORT="),
            HasSubstr("another secret"),
            HasSubstr("UNISONO_SECRET")));
}

TEST(Meet, WhatIsNoStoreIsNamedWithThePlace) {
  const Fd listener = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(listener.get()).port();
  Fd connection;  // Longer than the client looks at it.
  std::thread server([&] {
    ASSERT_TRUE(net::wait_for(listener.get(), POLLIN, soon()));
    connection = net::accept_connection(listener.get()).fd;
    const std::string words = "220 mail.example.org ESMTP, at your service for a long time\r\n";
    net::write_all(connection.get(), std::as_bytes(std::span(words)), soon(), "mail");
  });
  try {
    (void)meet(config_with("secret"), assignment(1, port), soon());
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                AllOf(HasSubstr("rank 1 was not let into the store at MASTER_ADDR=127.0.0.1"),
                      HasSubstr("something else may listen there")));
  }
  server.join();
}

TEST(Meet, AGivenStoreBringsItsSecretAndItsNetwork) {
  const auto store = std::make_shared<store::HashStore>();
  const Assignment second = assignment(1, 29500);
  const Meeting told = meet_in({.store = store, .secret = "the store's", .local_ip = "10.1.2.3"},
                               config_with("own"),
                               second);
  EXPECT_EQ(told.secret, "the store's");
  EXPECT_EQ(told.local_ip, "10.1.2.3");
  EXPECT_EQ(told.store, store);
  EXPECT_EQ(told.connect_again(seconds(1)), store);
  const Meeting none =
      meet_in({.store = store, .secret = "", .local_ip = "10.1.2.3"}, config_with("own"), second);
  EXPECT_EQ(none.secret, "");
  EXPECT_EQ(none.local_ip, "127.0.0.1") << "without a secret it stays on this machine";
  EXPECT_EQ(meet_in({.store = store}, config_with("own"), second).secret, "own");
}

TEST(Meet, ItSaysThatItStillWaits) {
  const ReservedPort port;
  Config config = config_with();
  config.stall = milliseconds(1);
  config.log_level = LogLevel::kInfo;
  ::testing::internal::CaptureStderr();
  (void)message_of(config, assignment(1, port.number()), ErrorCode::kTimeout);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              HasSubstr("[unisono rank 1] warning: rendezvous: rank 1 has tried"));
}

}  // namespace
}  // namespace unisono::rendezvous
