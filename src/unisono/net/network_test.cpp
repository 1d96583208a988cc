#include "unisono/net/network.h"

#include <string>

#include <gtest/gtest.h>

#include "unisono/net/address.h"

namespace unisono::net {
namespace {

bool contains(const std::string& network, const std::string& ip) {
  return Network::parse(network).value().contains(Address::parse(ip, 1).value());
}

TEST(Network, ContainsTheAddressesThatBeginAlike) {
  EXPECT_TRUE(contains("10.0.0.0/8", "10.255.0.1"));
  EXPECT_FALSE(contains("10.0.0.0/8", "11.0.0.1"));
  EXPECT_TRUE(contains("10.0.0.0/15", "10.1.0.1"));
  EXPECT_FALSE(contains("10.0.0.0/15", "10.2.0.1"));
  EXPECT_TRUE(contains("0.0.0.0/0", "192.168.1.1"));
  EXPECT_TRUE(contains("fd00::/16", "fd00:1::1"));
  EXPECT_FALSE(contains("fd00::/16", "fd01::1"));
}

TEST(Network, OneAddressIsANetworkOfItsOwn) {
  EXPECT_TRUE(contains("10.0.0.1", "10.0.0.1"));
  EXPECT_FALSE(contains("10.0.0.1", "10.0.0.2"));
  EXPECT_TRUE(contains("::1", "::1"));
}

TEST(Network, FamiliesMeetOnlyInMappedAddresses) {
  EXPECT_TRUE(contains("10.0.0.0/8", "::ffff:10.0.0.1"));
  EXPECT_FALSE(contains("0.0.0.0/0", "fd00::1"));
  EXPECT_TRUE(contains("::/0", "10.0.0.1"));
}

TEST(Network, WhatIsNoneIsSaid) {
  for (const char* text : {"",
                           "/8",
                           "10.0.0.0/33",
                           "10.0.0.0/-1",
                           "10.0.0.0/8x",
                           "10.0.0.0/",
                           "fd00::/129",
                           "host/8",
                           "10.1.0.0/8",
                           "10.0.0.1/31"}) {
    EXPECT_FALSE(Network::parse(text).has_value()) << text;
  }
}

}  // namespace
}  // namespace unisono::net
