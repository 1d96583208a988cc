#include "unisono/net/interfaces.h"

#include <net/if.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/net/address.h"

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

}  // namespace
}  // namespace unisono::net
