#include "unisono/rendezvous/resolve_rendezvous.h"

#include <chrono>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/testing/fake_environment.h"
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
  EXPECT_EQ(source_of("env://", kOpenMpi), "from the variables of Open MPI");
  // A rank's own options are no part of the place.
  EXPECT_EQ(source_of("tcp://10.0.0.1:29500?rank=1&world_size=2"),
            "init_method tcp://10.0.0.1:29500");
  EXPECT_EQ(source_of("tcp://10.0.0.1:29500?rank=1&world_size=2", given),
            "init_method tcp://10.0.0.1:29500");
  const test::TemporaryFolder folder;
  EXPECT_EQ(source_of("file://" + folder.path() + "/job?world_size=1"),
            "init_method file://" + folder.path() + "/job");
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
  FakeVariables variables = changed(kOpenMpi, {{"UNISONO_TIMEOUT_SECONDS", "7"}});
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

}  // namespace
}  // namespace unisono::rendezvous
