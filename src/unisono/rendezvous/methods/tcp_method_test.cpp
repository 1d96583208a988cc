#include "unisono/rendezvous/methods/tcp_method.h"

#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/methods/init_method.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

LaunchInfo read(const std::string& text, int rank = -1, int world_size = -1) {
  return read_tcp(parse_init_method(text), rank, world_size);
}

TEST(TcpMethod, SaysWhereTheRanksMeetAndWhichThisIs) {
  const LaunchInfo read_out = read("tcp://[::1]:1234?rank=2&world_size=4");
  EXPECT_EQ(read_out.master_addr, "::1");
  EXPECT_EQ(read_out.master_port, 1234);
  EXPECT_EQ(read_out.rank, 2);
  EXPECT_EQ(read_out.world_size, 4);
  EXPECT_FALSE(read_out.uses_agent_store);
}

TEST(TcpMethod, WhatTheProgramGivesCounts) {
  EXPECT_EQ(read("tcp://node-a", 1, 3).rank, 1);
  EXPECT_EQ(read("tcp://node-a", 1, 3).master_port, kDefaultMasterPort);
  EXPECT_EQ(read("tcp://node-a?rank=2&world_size=4", 1).rank, 1);
  EXPECT_EQ(read("tcp://node-a?rank=2&world_size=4", 1).world_size, 4);
}

TEST(TcpMethod, OneMessageNamesAllThatIsWrong) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"tcp://:29500?rank=0&world_size=1", "it names no host"},
      {"tcp://node-a/path?rank=0&world_size=1", "\"/path\" stands behind the address"},
      {"tcp://node-a?world_size=4", "there is no rank"},
      {"tcp://node-a?rank=0", "there is no world_size"},
      {"tcp://node-a?rank=4&world_size=4", "rank 4 is not below world_size 4"},
      {"tcp://node-a?rank=0&world_size=1&size=3", "there is no option size"},
      {"tcp://node-a?rank=x&world_size=1", "rank=x is no whole number"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT([&text = text] { (void)read(text); },
                ::testing::ThrowsMessage<Error>(AllOf(HasSubstr(text), HasSubstr(problem))));
  }
  EXPECT_THAT([] { (void)read("tcp://:29500"); },
              ::testing::ThrowsMessage<Error>(
                  HasSubstr("it names no host; there is no rank; there is no world_size")));
  EXPECT_THAT([] { (void)read("tcp://node-a", 0, 0); },
              ::testing::ThrowsMessage<Error>(HasSubstr("a world_size of 0 leaves no rank")));
  EXPECT_THAT(
      [] { (void)read("tcp://node-a", -2, -3); },
      ::testing::ThrowsMessage<Error>(HasSubstr("rank -2 is negative; world_size -3 is negative")));
}

}  // namespace
}  // namespace unisono::rendezvous
