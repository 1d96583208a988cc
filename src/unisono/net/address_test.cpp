#include "unisono/net/address.h"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::net {
namespace {

TEST(Address, NumericTextIsParsedAndPrinted) {
  for (const char* ip : {"127.0.0.1", "10.0.0.2", "0.0.0.0", "::1", "::", "2001:db8::7"}) {
    const auto address = Address::parse(ip, 4123);
    ASSERT_TRUE(address.has_value()) << ip;
    EXPECT_EQ(address->ip(), ip);
    EXPECT_EQ(address->port(), 4123);
  }
  EXPECT_EQ(Address::parse("10.0.0.2", 80)->to_string(), "10.0.0.2:80");
  EXPECT_EQ(Address::parse("::1", 80)->to_string(), "[::1]:80");
  EXPECT_EQ(Address::parse("[2001:db8::7]", 80), Address::parse("2001:db8::7", 80));
}

TEST(Address, NamesAndNonsenseAreNotNumeric) {
  for (const char* ip : {"",
                         "*",
                         "localhost",
                         "1.2.3.4.5",
                         "10.0.0.2:80",
                         "::g",
                         " 127.0.0.1",
                         "[",
                         "[]",
                         "[::1",
                         "::1]",
                         "[::1]:80",
                         "[[::1]]",
                         "[127.0.0.1]"}) {
    EXPECT_FALSE(Address::parse(ip, 1).has_value()) << '"' << ip << '"';
  }
}

TEST(Address, KnowsLoopbackAndWildcard) {
  for (const char* ip : {"127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1"}) {
    EXPECT_TRUE(Address::parse(ip, 1)->is_loopback()) << ip;
  }
  for (const char* ip : {"10.0.0.1", "0.0.0.0", "::", "::ffff:10.0.0.1"}) {
    EXPECT_FALSE(Address::parse(ip, 1)->is_loopback()) << ip;
  }
  EXPECT_EQ(Address::any(AF_INET, 80).to_string(), "0.0.0.0:80");
  EXPECT_EQ(Address::any(AF_INET6, 80).to_string(), "[::]:80");
  EXPECT_TRUE(Address::parse("::", 1)->is_wildcard());
  EXPECT_TRUE(Address::parse("0.0.0.0", 1)->is_wildcard());
  EXPECT_FALSE(Address::parse("::1", 1)->is_wildcard());
}

TEST(Resolve, FindsLocalhostAndNumericAddresses) {
  EXPECT_TRUE(resolve("localhost", 7).front().is_loopback());
  EXPECT_EQ(resolve("127.0.0.1", 7).front().to_string(), "127.0.0.1:7");
  EXPECT_EQ(resolve("[::1]", 7).front().to_string(), "[::1]:7");
}

// A retry can help only if the name is valid for a machine.
TEST(Resolve, NamesHostAndPortOfAHostThatIsNotThere) {
  for (const auto& [host, code] : {std::pair("no-such-host.invalid", ErrorCode::kNotFound),
                                   std::pair("", ErrorCode::kInvalidArgument),
                                   std::pair("bad host", ErrorCode::kInvalidArgument),
                                   std::pair("fe80::1", ErrorCode::kInvalidArgument)}) {
    EXPECT_THAT([host = host] { (void)resolve(host, 29500); },
                test::throws_error(code, "\"" + std::string(host) + "\"", "29500"));
  }
}

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
