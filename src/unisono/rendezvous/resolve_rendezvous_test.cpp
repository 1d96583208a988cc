#include "unisono/rendezvous/resolve_rendezvous.h"

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

#include "support/temporary_folder.h"

namespace unisono::rendezvous {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

// Who is said to have named the place.
std::string source_of(const std::string& method, const FakeVariables& variables = {}) {
  return resolve_rendezvous({.init_method = method, .environment = fake(variables)})
      .discovered.launch_info.place_source;
}

TEST(ResolveRendezvous, WhoNamedThePlaceIsKnown) {
  const FakeVariables given{
      {"MASTER_ADDR", "10.0.0.1"}, {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"UNISONO_SECRET", "x"}};
  EXPECT_EQ(source_of("env://", given), "") << "MASTER_ADDR itself";
  EXPECT_EQ(source_of("env://", kOpenMpiOnOneNode), "from the variables of Open MPI");
  // A rank's own options are no part of the place.
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
              ThrowsMessage<Error>(HasSubstr("nothing may stand behind env://")));
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
      {"tcp://node-a/path?rank=0&world_size=1", "\"/path\" stands behind the address"},
      {"tcp://node-a?world_size=4", "there is no rank"},
      {"tcp://node-a?rank=0", "there is no world_size"},
      {"tcp://node-a?rank=4&world_size=4", "rank 4 is not below world_size 4"},
      {"tcp://node-a?rank=0&world_size=1&size=3", "there is no option size"},
      {"tcp://node-a?rank=x&world_size=1", "rank=x is no whole number"}};
  for (const auto& [text, problem] : cases) {
    EXPECT_THAT([&text = text] { (void)read(text); },
                ThrowsMessage<Error>(AllOf(HasSubstr(text), HasSubstr(problem))));
  }
  EXPECT_THAT([] { (void)read("tcp://:29500"); },
              ThrowsMessage<Error>(
                  HasSubstr("the host is missing; there is no rank; there is no world_size")));
  EXPECT_THAT([] { (void)read("tcp://node-a", 0, 0); },
              ThrowsMessage<Error>(HasSubstr("a world_size of 0 leaves no rank")));
  EXPECT_THAT([] { (void)read("tcp://node-a", -2, -3); },
              ThrowsMessage<Error>(HasSubstr("rank -2 is negative; world_size -3 is negative")));
}

}  // namespace
}  // namespace unisono::rendezvous
