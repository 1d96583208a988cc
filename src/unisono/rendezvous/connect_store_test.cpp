#include "unisono/rendezvous/connect_store.h"

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/base/port_range.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/testing/two_rank_job.h"
#include "unisono/store/hash_store.h"
#include "unisono/store/tcp_host.h"

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
        // Its answer means that the value has arrived.
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

// Its name may lead to an address that others reach, or nowhere; and there is no secret.
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
  Member member;
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
    const Config config = config_with(secret);
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
  Config config;
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
  Config config;
  config.interface = "no such interface";
  const Fd fd = listen_for_data(config, session_from("127.0.0.1", ""));
  EXPECT_EQ(net::local_address(fd.get()).ip(), "127.0.0.1");
  EXPECT_THAT([&] { (void)listen_for_data(config, session_from("127.0.0.1", "secret")); },
              ThrowsMessage<Error>(HasSubstr("there is no such interface")));
}

}  // namespace
}  // namespace unisono::rendezvous
