#include "unisono/net/loopback.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/net/address.h"
#include "unisono/net/interfaces.h"
#include "unisono/net/socket.h"

namespace unisono::net {
namespace {

std::vector<Interface> interfaces_with(const std::vector<std::string>& ips) {
  Interface lo{.name = "lo", .addresses = {}};
  for (const std::string& ip : ips) {
    lo.addresses.push_back(*Address::parse(ip, 0));
  }
  const Interface outer{
      .name = "eth0", .addresses = {*Address::parse("10.0.0.1", 0), *Address::parse("fd00::1", 0)}};
  return {outer, lo};
}

std::string loopback_among(const std::vector<std::string>& ips) {
  return loopback_of(interfaces_with(ips)).ip();
}

TEST(Loopback, IsThatOfIpv6OnlyWhereThereIsNoOther) {
  EXPECT_EQ(loopback_among({"127.0.0.1", "::1"}), "127.0.0.1");
  EXPECT_EQ(loopback_among({"::1", "127.0.0.1"}), "127.0.0.1");
  EXPECT_EQ(loopback_among({"::1"}), "::1");
  // Its network is the machine's own then, 127.0.0.1 with it.
  EXPECT_EQ(loopback_among({"::1", "127.0.0.53"}), "127.0.0.1");
}

TEST(Loopback, IsThatOfIpv4WhereNothingIsKnown) {
  EXPECT_EQ(loopback_among({}), "127.0.0.1");
  EXPECT_EQ(loopback_of({}).ip(), "127.0.0.1");
}

TEST(Loopback, OfIpv4IsAWholeNetworkAndOfIpv6OneAddress) {
  const auto has = [](const std::vector<std::string>& ips, const char* ip) {
    return has_loopback(interfaces_with(ips), *Address::parse(ip, 0));
  };
  for (const char* const ip : {"127.0.0.1", "127.0.1.1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(has({"127.0.0.1"}, ip)) << ip;
    EXPECT_FALSE(has({"::1"}, ip)) << ip;
  }
  EXPECT_TRUE(has({"127.0.0.1", "::1"}, "::1"));
  EXPECT_FALSE(has({"127.0.0.1"}, "::1"));
  EXPECT_FALSE(has({}, "127.0.0.1"));
}

TEST(Loopback, CanBeListenedOn) {
  EXPECT_TRUE(listen_tcp(*Address::parse(loopback_host(), 0)).is_open());
}

}  // namespace
}  // namespace unisono::net
