#include "unisono/rendezvous/methods/init_method.h"

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using Query = std::map<std::string, std::string>;

TEST(InitMethod, IsTakenApart) {
  const InitMethod tcp = parse_init_method("tcp://10.0.0.1:29500?rank=1&world_size=4");
  EXPECT_EQ(tcp.scheme, "tcp");
  EXPECT_EQ(tcp.host, "10.0.0.1");
  EXPECT_EQ(tcp.port, 29500);
  EXPECT_EQ(tcp.path, "");
  EXPECT_EQ(tcp.query, (Query{{"rank", "1"}, {"world_size", "4"}}));
  EXPECT_EQ(tcp.number("rank", 0), 1);
  EXPECT_EQ(tcp.number("absent", 0), std::nullopt);
}

TEST(InitMethod, PartsMayBeMissing) {
  const InitMethod env = parse_init_method("env://");
  EXPECT_EQ(env.scheme, "env");
  EXPECT_EQ(env.host + env.path, "");
  EXPECT_EQ(env.port, std::nullopt);
  EXPECT_EQ(parse_init_method("tcp://host").port, std::nullopt);
  EXPECT_EQ(parse_init_method("tcp://:29500").host, "");
  EXPECT_EQ(parse_init_method("tcp://:29500").port, 29500);
}

TEST(InitMethod, AddressesOfIPv6StandInBrackets) {
  const InitMethod method = parse_init_method("tcp://[ff15::1%eth0]:23456");
  EXPECT_EQ(method.host, "ff15::1%eth0");
  EXPECT_EQ(method.port, 23456);
  EXPECT_EQ(parse_init_method("tcp://[::1]").host, "::1");
}

TEST(InitMethod, APathIsAllFromTheFirstSlash) {
  const InitMethod method = parse_init_method("file:///scratch/my%20job/a:b?group_name=x%26y");
  EXPECT_EQ(method.host, "");
  EXPECT_EQ(method.path, "/scratch/my job/a:b");
  EXPECT_EQ(method.query, (Query{{"group_name", "x&y"}}));
}

TEST(InitMethod, WhatIsWrongIsShown) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"", "does not begin with a scheme"},
      {"env:", "does not begin with a scheme"},
      {"://host", "does not begin with a scheme"},
      {"TCP://host", "does not begin with a scheme"},
      {"tcp://host:0", "\"0\" is no port"},
      {"tcp://host:65536", "\"65536\" is no port"},
      {"tcp://host:", "\"\" is no port"},
      {"tcp://host:1x", "\"1x\" is no port"},
      {"tcp://::1:29500", "write [::1]:29500"},
      {"tcp://::1", "write [::1]"},
      {"tcp://alpha:1:2", "no IPv6 address"},
      {"tcp://[::1", "write [::1]"},
      {"tcp://[::1]x", "behind the ]"},
      {"tcp://host:1?rank", "\"rank\" is no name=value"},
      {"tcp://host:1?=1", "\"=1\" is no name=value"},
      {"tcp://host:1?rank=1&rank=2", "rank is given twice"},
      {"file:///a%2", "no two digits"},
      {"file:///a%zz", "no two digits"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(
        [&text = text] { (void)parse_init_method(text); },
        ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("\"" + text + "\""), HasSubstr(problem))));
  }
}

TEST(InitMethod, NumbersAreChecked) {
  const InitMethod method = parse_init_method("tcp://host:1?rank=-1&world_size=two");
  EXPECT_THAT([&] { (void)method.number("rank", 0); },
              ::testing::ThrowsMessage<Error>(HasSubstr("rank=-1 is no whole number")));
  EXPECT_THAT([&] { (void)method.number("world_size", 1); },
              ::testing::ThrowsMessage<Error>(HasSubstr("world_size=two")));
  EXPECT_THAT([] { (void)parse_init_method("tcp://host?rank=99999999999").number("rank", 0); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "rank=99999999999 is no whole number of at least 0 and at most 2147483647")));
}

}  // namespace
}  // namespace unisono::rendezvous
