#include "unisono/net/host_port.h"

#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/throws_error.h"

namespace unisono::net {
namespace {

using test::throws_error;
using ::testing::HasSubstr;

TEST(HostPort, ANumericIpv6AddressIsInBrackets) {
  EXPECT_EQ(join_host_port("alpha", 29500), "alpha:29500");
  EXPECT_EQ(join_host_port("10.0.0.2", 29500), "10.0.0.2:29500");
  EXPECT_EQ(join_host_port("::1", 29500), "[::1]:29500");
  EXPECT_EQ(join_host_port("[::1]", 29500), "[::1]:29500");
}

// Some have no address now, and may have one later.
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
                         {"alpha:http", "no IPv6 address"},
                         {"::g", "no IPv6 address"},
                         {"[::1", "write [::1]"},
                         {"[::1:5", "write [::1:5]"},
                         {"::1]", "nothing opens"},
                         {"[::1]x", "\"x\" stands behind the ]"},
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
  EXPECT_THAT([] { check_host("MASTER_ADDR=\"a\tb\"", "a\tb"); },
              throws_error(ErrorCode::kInvalidArgument, "MASTER_ADDR=\"a\\tb\" names no machine"));
  EXPECT_NO_THROW(check_host("MASTER_ADDR=\"alpha\"", "alpha"));
}

}  // namespace
}  // namespace unisono::net
