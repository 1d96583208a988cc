#include "unisono/net/host.h"

#include <net/if.h>

#include <algorithm>
#include <set>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/net/socket.h"

#include "support/throws_error.h"

namespace unisono::net {
namespace {

TEST(Interfaces, LoopbackIsOneOfThemWithItsAddress) {
  const std::vector<Interface> all = interfaces();
  const auto loopback = std::find_if(
      all.begin(), all.end(), [](const Interface& interface) { return interface.is_loopback; });
  ASSERT_NE(loopback, all.end());
  EXPECT_EQ(loopback->index, ::if_nametoindex(loopback->name.c_str()));
  EXPECT_TRUE(loopback->is_up);
  std::vector<std::string> ips;
  for (const Address& address : loopback->addresses) {
    EXPECT_EQ(address.port(), 0);
    ips.push_back(address.ip());
  }
  EXPECT_THAT(ips, ::testing::Contains("127.0.0.1"));
}

TEST(Interfaces, EachIsThereOnce) {
  std::set<std::string> names;
  unsigned last = 0;
  for (const Interface& interface : interfaces()) {
    EXPECT_TRUE(names.insert(interface.name).second) << interface.name;
    EXPECT_GT(interface.index, last);
    last = interface.index;
  }
}

TEST(Interfaces, KnowTheirAddressesWhateverThePort) {
  const auto a = Address::parse("10.0.0.2", 0);
  const auto b = Address::parse("fd00::2", 0);
  ASSERT_TRUE(a && b);
  const std::vector<Interface> all{{.name = "lo", .addresses = {}},
                                   {.name = "eth0", .addresses = {*a, *b}}};
  EXPECT_TRUE(has_address(all, *Address::parse("10.0.0.2", 29500)));
  EXPECT_TRUE(has_address(all, *Address::parse("fd00::2", 29500)));
  EXPECT_FALSE(has_address(all, *Address::parse("10.0.0.3", 0)));
  EXPECT_FALSE(has_address({}, *a));
}

TEST(Interfaces, ADescriptionTellsWhatCanBeUsed) {
  const auto a = Address::parse("10.0.0.2", 0);
  const auto b = Address::parse("fd00::2", 0);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(
      describe(
          {{.name = "eth0", .index = 2, .is_up = true, .has_carrier = true, .addresses = {*a, *b}},
           {.name = "eth1", .index = 3, .addresses = {*a}},
           {.name = "ib0", .index = 4, .is_up = true, .addresses = {*b}},
           {.name = "eth2", .index = 5, .is_up = true, .has_carrier = true, .addresses = {}}}),
      "eth0 (10.0.0.2, fd00::2), eth1 (10.0.0.2, down), ib0 (fd00::2, no carrier), eth2 (no "
      "address)");
  EXPECT_EQ(describe({}), "none");
}

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
  // In this case the network is the machine's own network, including 127.0.0.1.
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

using test::throws_error;
using ::testing::HasSubstr;

TEST(HostPort, ANumericIpv6AddressIsInBrackets) {
  EXPECT_EQ(join_host_port("alpha", 29500), "alpha:29500");
  EXPECT_EQ(join_host_port("10.0.0.2", 29500), "10.0.0.2:29500");
  EXPECT_EQ(join_host_port("::1", 29500), "[::1]:29500");
  EXPECT_EQ(join_host_port("[::1]", 29500), "[::1]:29500");
}

// Some of these names have no address now but may have an address later.
TEST(HostFault, NoneIsFoundInWhatAMachineMayHave) {
  for (const std::string host : {"alpha",
                                 "alpha.example.org",
                                 "alpha.example.org.",
                                 "gpu_node-7",
                                 "7",
                                 "123456789012",
                                 "node.7",
                                 "no-such-host.invalid",
                                 "m\u00fcnchen",
                                 "10.0.0.2",
                                 "0.0.0.0",
                                 "::1",
                                 "[::1]",
                                 "::",
                                 "2001:db8::7",
                                 "fe80::1%lo"}) {
    EXPECT_EQ(describe_host_fault(host), "") << host;
    EXPECT_EQ(describe_host_fault(host, ""), "") << host;
  }
}

TEST(HostFault, IsNamedWithTheFormThatWorks) {
  struct Case {
    std::string host;
    const char* form;
  };

  for (const auto& [host, form] :
       std::vector<Case>{{"", "missing"},
                         {"a b", "blank"},
                         {"alpha\r", "invisible"},
                         {"\ufeffalpha", "invisible"},
                         {"alpha\u200b", "invisible"},
                         {"http://alpha", "without http://"},
                         {"alpha/x", "no name has a \"/\""},
                         {"*", "no name has a \"*\""},
                         {"me@alpha", "no name has a \"@\""},
                         {"-alpha", "begins with"},
                         {"alpha..org", "between its dots"},
                         {std::string(64, 'a'), "1 to 63"},
                         {"256.1.1.1", "0 to 255"},
                         {"10.0.0.1.5", "four numbers"},
                         {"10.0.0.1.", "four numbers"},
                         {"239.1.1.1", "multicast"},
                         {"ff15::1", "multicast"},
                         {"255.255.255.255", "broadcast"},
                         {"alpha:29500", "write alpha, and give 29500 as the port"},
                         {"10.0.0.1:29500", "write 10.0.0.1, and give 29500 as the port"},
                         {"::1:29574", "write ::1, and give 29574 as the port"},
                         {"[::1]:29574", "write ::1, and give 29574 as the port"},
                         {"256.1.1.1:29500", "0 to 255"},
                         {"alpha:http", "not an IPv6 address"},
                         {"::g", "not an IPv6 address"},
                         {"[::1", "write [::1]"},
                         {"[::1:5", "write [::1:5]"},
                         {"::1]", "nothing opens"},
                         {"[::1]x", "\"x\" follows the ]"},
                         {"[alpha]", "write alpha"},
                         {"[alpha]:29500", "write alpha:29500"},
                         {"fe80::1", "write fe80::1%eth0"},
                         {"[fe80::1]", "write fe80::1%eth0"},
                         {"[fe80::1]:29500", "write fe80::1%eth0"},
                         {"fe80::1%no-such-0", "no interface \"no-such-0\""},
                         {"2001:db8::7%lo", "write 2001:db8::7"}}) {
    EXPECT_THAT(describe_host_fault(host), HasSubstr(form)) << host;
  }
}

TEST(HostFault, NamesThePlaceOfThePort) {
  EXPECT_THAT(describe_host_fault("alpha:29500", "MASTER_PORT"),
              HasSubstr("write alpha, and give 29500 as MASTER_PORT"));
  EXPECT_THAT(describe_host_fault("::1:29574", ""), HasSubstr("write [::1]:29574"));
}

TEST(HostFault, IsRefusedAsItWasTyped) {
  EXPECT_THAT(
      [] { check_host("MASTER_ADDR=\"a\tb\"", "a\tb"); },
      throws_error(ErrorCode::kInvalidArgument, "MASTER_ADDR=\"a\\tb\" is not a valid host"));
  EXPECT_NO_THROW(check_host("MASTER_ADDR=\"alpha\"", "alpha"));
}

}  // namespace
}  // namespace unisono::net
