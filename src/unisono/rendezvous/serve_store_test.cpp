#include "unisono/rendezvous/serve_store.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/base/fd.h"
#include "unisono/net/address.h"
#include "unisono/net/socket.h"
#include "unisono/rendezvous/connect_store.h"
#include "unisono/rendezvous/roster/exchange_roster.h"
#include "unisono/rendezvous/roster/roster.h"
#include "unisono/rendezvous/testing/ranks.h"
#include "unisono/store/store.h"
#include "unisono/store/tcp_store.h"

namespace unisono::rendezvous {
namespace {

using std::chrono::milliseconds;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

ServedStore serve(const base::Config& config,
                  const LaunchInfo& launch_info,
                  const RosterKeys& keys = {},
                  Deadline deadline = soon()) {
  return serve_store(config, launch_info, config.secret, deadline, keys);
}

// Returns the error of a rank 0 that tries to serve the store at this port.
std::string refusal_of(const base::Config& config, std::uint16_t port) {
  try {
    (void)serve(config, launch_info(0, port), {}, Deadline::after(milliseconds(50)));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kSystem) << error.what();
    return error.what();
  }
  return "no error";
}

// Joins as rank 0 of two ranks and leaves.
void join(store::Store& store) {
  RosterMember member;
  member.world_size = 2;
  member.address = "127.0.0.1";
  EXPECT_THROW((void)exchange_roster(store, member, Deadline::after(milliseconds(2))), Error);
}

TEST(ServeStore, APortInUseIsAnErrorOfRank0AtOnce) {
  const Fd other = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(other.get()).port();
  for (const char* secret : {"", "secret"}) {
    EXPECT_THAT(refusal_of(config_with(secret), port),
                HasSubstr("port " + std::to_string(port) + " is in use by process "));
  }
}

// UBSan checks memory through a pipe, which needs descriptors.
#ifndef __SANITIZE_ADDRESS__
// Like a port that only root may use, or an address that the machine does not have.
TEST(ServeStore, WhatTheSystemRefusesIsSaidWithThePlace) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  const Fd next(::dup(STDERR_FILENO));
  rlimit none_left = before;
  none_left.rlim_cur = static_cast<rlim_t>(next.get());
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none_left), 0);
  const std::string refusal = refusal_of(config_with(), 29500);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  EXPECT_THAT(refusal,
              AllOf(HasSubstr("rendezvous: rank 0 can't serve the store at MASTER_ADDR=127.0.0.1, "
                              "MASTER_PORT=29500: "),
                    HasSubstr("Too many open files"),
                    HasSubstr("raise the limit of open files, which is")));
}
#endif

TEST(ServeStore, APortInUseIsSaidToBeAnotherJobsWithThePlace) {
  const Fd other = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(other.get()).port();
  EXPECT_THAT(refusal_of(config_with(), port),
              AllOf(HasSubstr("rendezvous: rank 0 can't serve the store at MASTER_ADDR=127.0.0.1, "
                              "MASTER_PORT=" +
                              std::to_string(port)),
                    HasSubstr("another job may use the port")));
}

// The ranks of the first job are not affected.
TEST(ServeStore, ASecondJobAtThePortFailsAlone) {
  const ReservedPort port;
  const base::Config config = config_with();
  const LaunchInfo rank_0 = launch_info(0, port.number());
  const ServedStore first = serve(config, rank_0);
  EXPECT_NE(first.host, nullptr);
  EXPECT_EQ(first.of_twin, nullptr);
  const auto store = connect_as_client(config, rank_0, "", soon());
  join(*store);
  const ServedStore twin = serve(config, rank_0);
  EXPECT_EQ(twin.host, nullptr);
  EXPECT_NE(twin.of_twin, nullptr);
  LaunchInfo other = rank_0;
  other.world_size = 3;
  EXPECT_THAT([&] { (void)serve(config, other); },
              ThrowsMessage<Error>(AllOf(HasSubstr("is in use by process "),
                                         HasSubstr("another job may use the port"))));
  EXPECT_EQ(store->get("unisono/0/count", soon()), "1");
}

TEST(ServeStore, ASecondRank0IsLookedForWhereTheRanksMeet) {
  const ReservedPort port;
  const base::Config config = config_with();
  const LaunchInfo rank_0 = launch_info(0, port.number());
  const ServedStore first = serve(config, rank_0);
  store::PrefixStore part("part", connect_as_client(config, rank_0, "", soon()));
  join(part);
  EXPECT_NE(serve(config, rank_0, {.part = "part"}).of_twin, nullptr);
  for (const RosterKeys& keys : {RosterKeys{}, {.part = "part", .generation = 1}}) {
    EXPECT_THROW((void)serve(config, rank_0, keys, Deadline::after(milliseconds(50))), Error);
  }
}

TEST(ServeStore, ItIsServedAtTheMastersAddressIfThisMachineHasIt) {
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
  LaunchInfo env = launch_info(0, port.number());
  env.master_addr = ip;
  const ServedStore served = serve(config_with("secret"), env);
  EXPECT_EQ(served.host->address().ip(), ip);
  EXPECT_TRUE(net::is_refused(net::Address::loopback(port.number()), soon()));
}

// The name may later resolve to either family.
TEST(ServeStore, AtANameThatLeadsNowhereYetItIsServedAtBothFamilies) {
  const ReservedPort port;
  const Fd listener = net::listen_tcp(listen_address("no-such-host.invalid", port.number(), true));
  EXPECT_TRUE(net::connect_tcp("127.0.0.1", port.number(), soon()).is_open());
  if (net::any_of_both_families(0).family() == AF_INET ||
      net::find_obstacle(*net::Address::parse("::1", port.number()), soon()) == EADDRNOTAVAIL) {
    GTEST_SKIP() << "this machine has no IPv6";
  }
  EXPECT_TRUE(net::connect_tcp("::1", port.number(), soon()).is_open());
}

// Other ranks may use another address of the host.
TEST(ServeStore, ItIsServedAtAllAddressesWhereThereAreMany) {
  const ReservedPort port;
  LaunchInfo env = launch_info(0, port.number());
  env.has_many_addresses = true;
  EXPECT_TRUE(serve(config_with("secret"), env).host->address().is_loopback());
  env.master_addr = outer_ip();
  if (env.master_addr.empty()) {
    GTEST_SKIP() << "this machine has loopback only";
  }
  EXPECT_TRUE(serve(config_with("secret"), env).host->address().is_wildcard());
}

TEST(ServeStore, APortThatBecomesFreeIsServed) {
  Fd other = net::listen_tcp(net::Address::loopback(0));
  const std::uint16_t port = net::local_address(other.get()).port();
  std::thread ends([&] {
    std::this_thread::sleep_for(milliseconds(100));  // By then rank 0 has found the port in use.
    other.reset();
  });
  const ServedStore served = serve(config_with(), launch_info(0, port));
  ends.join();
  EXPECT_NE(served.host, nullptr);
  EXPECT_EQ(served.of_twin, nullptr);
}

}  // namespace
}  // namespace unisono::rendezvous
