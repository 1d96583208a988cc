#include "unisono/net/host_port.h"

#include <gtest/gtest.h>

namespace unisono::net {
namespace {

TEST(HostPort, ANumericIpv6AddressIsInBrackets) {
  EXPECT_EQ(join_host_port("alpha", 29500), "alpha:29500");
  EXPECT_EQ(join_host_port("10.0.0.2", 29500), "10.0.0.2:29500");
  EXPECT_EQ(join_host_port("::1", 29500), "[::1]:29500");
  EXPECT_EQ(join_host_port("[::1]", 29500), "[::1]:29500");
}

}  // namespace
}  // namespace unisono::net
