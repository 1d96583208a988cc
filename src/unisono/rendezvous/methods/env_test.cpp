#include "unisono/rendezvous/methods/env.h"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::HasSubstr;

const FakeVariables kGood{{"MASTER_ADDR", "10.0.0.1"},
                          {"MASTER_PORT", "1234"},
                          {"RANK", "2"},
                          {"WORLD_SIZE", "4"},
                          {"LOCAL_RANK", "1"}};

FakeVariables good_but(const std::string& name, const std::string& value) {
  return changed(kGood, {{name, value}});
}

std::string message_of(const FakeVariables& variables, int rank = -1, int world_size = -1) {
  try {
    (void)read_env(fake(variables), rank, world_size);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
    return error.what();
  }
  return "no error";
}

TEST(Env, ReadsWhatALauncherSets) {
  const LaunchInfo env = read_env(fake(kGood));
  EXPECT_EQ(env.master_addr, "10.0.0.1");
  EXPECT_EQ(env.master_port, 1234);
  EXPECT_EQ(env.rank, 2);
  EXPECT_EQ(env.world_size, 4);
  EXPECT_EQ(env.local_rank, 1);
  EXPECT_FALSE(env.uses_agent_store);
}

TEST(Env, PortAndLocalRankMayBeUnset) {
  const LaunchInfo env =
      read_env(fake({{"MASTER_ADDR", "localhost"}, {"RANK", "0"}, {"WORLD_SIZE", "1"}}));
  EXPECT_EQ(env.master_port, 29500);
  EXPECT_EQ(env.local_rank, -1);
}

TEST(Env, ALauncherMayServeTheStore) {
  for (const char* text : {"True", "true", "1"}) {
    EXPECT_TRUE(read_env(fake(good_but("TORCHELASTIC_USE_AGENT_STORE", text))).uses_agent_store);
  }
  for (const char* text : {"False", "0", ""}) {
    EXPECT_FALSE(read_env(fake(good_but("TORCHELASTIC_USE_AGENT_STORE", text))).uses_agent_store);
  }
}

TEST(Env, TheProgramsOptionsComeFirst) {
  const LaunchInfo env = read_env(fake({{"MASTER_ADDR", "localhost"}, {"RANK", "x"}}), 5, 8);
  EXPECT_EQ(env.rank, 5);
  EXPECT_EQ(env.world_size, 8);
  EXPECT_THAT(message_of(kGood, 5),
              HasSubstr("RANK=5 (given by the program) is not below WORLD_SIZE=4. "));
  EXPECT_THAT(message_of(kGood, -1, 0), HasSubstr("WORLD_SIZE=0 (given by the program)"));
  EXPECT_THAT(message_of(kGood, -2), HasSubstr("RANK=-2 (given by the program) is negative. "));
  EXPECT_THAT(message_of(kGood, 0, -4),
              HasSubstr("WORLD_SIZE=-4 (given by the program) is negative. "));
}

TEST(Env, OneMessageNamesAllThatIsMissing) {
  const std::string message = message_of({});
  EXPECT_THAT(message,
              HasSubstr("MASTER_ADDR is not set; WORLD_SIZE is not set; RANK is not set."));
  EXPECT_THAT(message, HasSubstr("unisono run"));
  EXPECT_THAT(message, HasSubstr("torchrun"));
  EXPECT_THAT(message, HasSubstr("by hand"));
}

TEST(Env, OneMessageNamesAllThatIsWrongWithItsValue) {
  const std::string message = message_of({{"MASTER_ADDR", ""},
                                          {"MASTER_PORT", "65536"},
                                          {"RANK", "one"},
                                          {"WORLD_SIZE", "-4"},
                                          {"LOCAL_RANK", "0.5"}});
  EXPECT_THAT(message, HasSubstr("MASTER_ADDR=\"\" is no host name"));
  EXPECT_THAT(message, HasSubstr("MASTER_PORT=\"65536\" is no whole number from 1 to 65535"));
  EXPECT_THAT(message, HasSubstr("RANK=\"one\" is no whole number of at least 0"));
  EXPECT_THAT(message, HasSubstr("WORLD_SIZE=\"-4\" is no whole number of at least 1"));
  EXPECT_THAT(message, HasSubstr("LOCAL_RANK=\"0.5\""));
}

TEST(Env, ANumberThatIsTooLargeIsSaidToBeSo) {
  for (const char* size : {"2147483648", "99999999999", "99999999999999999999999"}) {
    EXPECT_THAT(message_of(good_but("WORLD_SIZE", size)),
                HasSubstr(std::string("WORLD_SIZE=\"") + size +
                          "\" is too large; at most 2147483647 is taken"));
  }
}

TEST(Env, ARankMustBeBelowTheWorldSize) {
  EXPECT_THAT(message_of(good_but("RANK", "4")), HasSubstr("RANK=4 is not below WORLD_SIZE=4"));
  EXPECT_EQ(message_of(good_but("RANK", "3")), "no error");
}

TEST(Env, ALocalRankMustBeBelowTheLocalWorldSize) {
  EXPECT_THAT(message_of(good_but("LOCAL_WORLD_SIZE", "1")),
              HasSubstr("LOCAL_RANK=1 is not below LOCAL_WORLD_SIZE=1"));
  EXPECT_THAT(message_of(good_but("LOCAL_WORLD_SIZE", "two")),
              HasSubstr("LOCAL_WORLD_SIZE=\"two\""));
  EXPECT_EQ(message_of(good_but("LOCAL_WORLD_SIZE", "2")), "no error");
  const FakeVariables mpi{{"OMPI_COMM_WORLD_RANK", "0"},
                          {"OMPI_COMM_WORLD_SIZE", "4"},
                          {"OMPI_COMM_WORLD_LOCAL_RANK", "3"},
                          {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                          {"MASTER_ADDR", "10.0.0.1"}};
  EXPECT_THAT([&] { (void)read_env(fake(mpi), -1, -1, find_launcher(fake(mpi))); },
              ::testing::ThrowsMessage<Error>(HasSubstr(
                  "OMPI_COMM_WORLD_LOCAL_RANK=3 is not below OMPI_COMM_WORLD_LOCAL_SIZE=2")));
}

TEST(Env, EveryBadNumberIsRefused) {
  for (const char* text : {"", " 1", "1 ", "+1", "0x1", "1e1", "-1", "99999999999999999999"}) {
    for (const char* name : {"RANK", "WORLD_SIZE", "MASTER_PORT", "LOCAL_RANK"}) {
      EXPECT_THAT(message_of(good_but(name, text)), HasSubstr(std::string(name) + "=\"" + text))
          << name;
    }
  }
  EXPECT_THAT(message_of(good_but("MASTER_PORT", "0")), HasSubstr("MASTER_PORT"));
  EXPECT_THAT(message_of(good_but("WORLD_SIZE", "0")), HasSubstr("WORLD_SIZE"));
  EXPECT_THAT(message_of(good_but("MASTER_ADDR", "a b")), HasSubstr("MASTER_ADDR=\"a b\""));
}

}  // namespace
}  // namespace unisono::rendezvous
