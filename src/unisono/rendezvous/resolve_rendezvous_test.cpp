#include "unisono/rendezvous/resolve_rendezvous.h"

#include <map>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/testing/ranks.h"

#include "support/temporary_folder.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Returns the reported source of the address.
std::string source_of(const std::string& method, const FakeVariables& variables = {}) {
  return resolve_rendezvous({.init_method = method, .environment = fake(variables)})
      .discovered.launch_info.place_source;
}

TEST(ResolveRendezvous, WhoNamedThePlaceIsKnown) {
  const FakeVariables given{
      {"MASTER_ADDR", "10.0.0.1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"UNISONO_SECRET", "x"}};
  EXPECT_EQ(source_of("env://", given), "") << "MASTER_ADDR itself";
  EXPECT_EQ(source_of("env://", kOpenMpiOnOneNode), "from the variables of Open MPI");
  // A rank's own options are not part of the address.
  EXPECT_EQ(source_of("tcp://10.0.0.1:29500?rank=1&world_size=2"),
            "init_method tcp://10.0.0.1:29500");
  EXPECT_EQ(source_of("tcp://10.0.0.1:29500?rank=1&world_size=2", given),
            "init_method tcp://10.0.0.1:29500");
  const test::TemporaryFolder folder;
  EXPECT_EQ(source_of("file://" + folder.path() + "/job?world_size=1"),
            "init_method file://" + folder.path() + "/job");
}

TEST(ResolveRendezvous, ALauncherIsNotCalledARank) {
  const FakeVariables variables = changed(
      kOpenMpiOnOneNode,
      {{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_LOCAL_RANK", "0"}, {"PMIX_RANK", "0"}});
  ::testing::internal::CaptureStderr();
  (void)resolve_rendezvous({.environment = fake(variables)});
  EXPECT_THAT(
      ::testing::internal::GetCapturedStderr(),
      AllOf(HasSubstr("[unisono rank 0] started by Open MPI"), HasSubstr(": 4 ranks meet at ")));
  ::testing::internal::CaptureStderr();
  (void)resolve_rendezvous({.environment = fake(variables), .process_name = "launcher"});
  EXPECT_THAT(::testing::internal::GetCapturedStderr(),
              AllOf(HasSubstr("[unisono launcher 0] started by Open MPI"),
                    HasSubstr(": 4 launchers meet at ")));
}

TEST(ResolveRendezvous, EachSchemeHasItsSource) {
  const FakeVariables variables{
      {"MASTER_ADDR", "node-a"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"UNISONO_SECRET", "x"}};
  const auto launch_info = [&](const std::string& method) {
    return resolve_rendezvous({.init_method = method, .environment = fake(variables)})
        .discovered.launch_info;
  };
  EXPECT_EQ(launch_info("env://").master_addr, "node-a");
  EXPECT_EQ(launch_info("env://").rank, 1);
  EXPECT_EQ(launch_info("tcp://node-b:1234?rank=3&world_size=4").master_addr, "node-b");
  EXPECT_EQ(launch_info("tcp://node-b:1234?rank=3&world_size=4").rank, 3);
  EXPECT_THAT([&] { (void)launch_info("env://?rank=0"); },
              ThrowsMessage<Error>(HasSubstr("nothing may follow env://")));
}

TEST(ResolveRendezvous, OneMessageNamesAllThatIsWrong) {
  EXPECT_THAT(
      [] { (void)source_of("env://", {{"RANK", "x"}, {"UNISONO_TIMEOUT_SECONDS", "y"}}); },
      ThrowsMessage<Error>(AllOf(HasSubstr("RANK=\"x\""), HasSubstr("UNISONO_TIMEOUT_SECONDS"))));
}

TEST(ResolveRendezvous, TheTimeoutIsTheProgramsOrTheSettings) {
  FakeVariables variables = changed(kOpenMpiOnOneNode, {{"UNISONO_TIMEOUT_SECONDS", "7"}});
  EXPECT_EQ(resolve_rendezvous({.environment = fake(variables)}).timeout, std::chrono::seconds(7));
  EXPECT_EQ(resolve_rendezvous({.timeout = std::chrono::seconds(3), .environment = fake(variables)})
                .timeout,
            std::chrono::seconds(3));
  EXPECT_THAT(
      [&] {
        (void)resolve_rendezvous(
            {.timeout = std::chrono::seconds(0), .environment = fake(variables)});
      },
      ThrowsMessage<Error>(HasSubstr("the timeout is 0 ms")));
}

LaunchInfo read(const std::string& text, int rank = -1, int world_size = -1) {
  return resolve_rendezvous({.init_method = text,
                             .given = {.rank = rank, .world_size = world_size},
                             .environment = fake({})})
      .discovered.launch_info;
}

TEST(ResolveRendezvous, TcpSaysWhereTheRanksMeetAndWhichThisIs) {
  const LaunchInfo read_out = read("tcp://[::1]:1234?rank=2&world_size=4");
  EXPECT_EQ(read_out.master_addr, "::1");
  EXPECT_EQ(read_out.master_port, 1234);
  EXPECT_EQ(read_out.rank, 2);
  EXPECT_EQ(read_out.world_size, 4);
  EXPECT_FALSE(read_out.uses_agent_store);
}

TEST(ResolveRendezvous, WhatTheProgramGivesCountsForTcp) {
  EXPECT_EQ(read("tcp://node-a", 1, 3).rank, 1);
  EXPECT_EQ(read("tcp://node-a", 1, 3).master_port, kDefaultMasterPort);
  EXPECT_EQ(read("tcp://node-a?rank=2&world_size=4", 1).rank, 1);
  EXPECT_EQ(read("tcp://node-a?rank=2&world_size=4", 1).world_size, 4);
}

TEST(ResolveRendezvous, OneMessageNamesAllThatIsWrongWithTcp) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"tcp://:29500?rank=0&world_size=1", "the host is missing"},
      {"tcp://node-a/path?rank=0&world_size=1", "\"/path\" follows the address"},
      {"tcp://node-a?world_size=4", "there is no rank"},
      {"tcp://node-a?rank=0", "there is no world_size"},
      {"tcp://node-a?rank=4&world_size=4", "rank 4 is not below world_size 4"},
      {"tcp://node-a?rank=0&world_size=1&size=3", "there is no option size"},
      {"tcp://node-a?rank=x&world_size=1", "rank=x is not a whole number"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT([&text = text] { (void)read(text); },
                ThrowsMessage<Error>(AllOf(HasSubstr(text), HasSubstr(problem))));
  }
  EXPECT_THAT([] { (void)read("tcp://:29500"); },
              ThrowsMessage<Error>(
                  HasSubstr("the host is missing; there is no rank; there is no world_size")));
  EXPECT_THAT([] { (void)read("tcp://node-a", 0, 0); },
              ThrowsMessage<Error>(HasSubstr("a world_size of 0 is not positive")));
  EXPECT_THAT([] { (void)read("tcp://node-a", -2, -3); },
              ThrowsMessage<Error>(HasSubstr("rank -2 is negative; world_size -3 is negative")));
}

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
      {"tcp://host:0", "\"0\" is not a port"},
      {"tcp://host:65536", "\"65536\" is not a port"},
      {"tcp://host:", "\"\" is not a port"},
      {"tcp://host:1x", "\"1x\" is not a port"},
      {"tcp://::1:29500", "write [::1]:29500"},
      {"tcp://::1", "write [::1]"},
      {"tcp://alpha:1:2", "not an IPv6 address"},
      {"tcp://[::1", "write [::1]"},
      {"tcp://[::1]x", "after the ]"},
      {"tcp://host:1?rank", "\"rank\" is not name=value"},
      {"tcp://host:1?=1", "\"=1\" is not name=value"},
      {"tcp://host:1?rank=1&rank=2", "rank is given twice"},
      {"file:///a%2", "is not followed by two digits"},
      {"file:///a%zz", "is not followed by two digits"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT(
        [&text = text] { (void)parse_init_method(text); },
        ::testing::ThrowsMessage<Error>(AllOf(HasSubstr("\"" + text + "\""), HasSubstr(problem))));
  }
}

TEST(InitMethod, NumbersAreChecked) {
  const InitMethod method = parse_init_method("tcp://host:1?rank=-1&world_size=two");
  EXPECT_THAT([&] { (void)method.number("rank", 0); },
              ::testing::ThrowsMessage<Error>(HasSubstr("rank=-1 is not a whole number")));
  EXPECT_THAT([&] { (void)method.number("world_size", 1); },
              ::testing::ThrowsMessage<Error>(HasSubstr("world_size=two")));
  EXPECT_THAT([] { (void)parse_init_method("tcp://host?rank=99999999999").number("rank", 0); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "rank=99999999999 is not a whole number of at least 0 and at most 2147483647")));
}

}  // namespace
}  // namespace unisono::rendezvous
