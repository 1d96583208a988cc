#include "unisono/rendezvous/launch_info.h"

#include <gtest/gtest.h>

#include "unisono/net/loopback.h"
#include "unisono/rendezvous/testing/two_rank_job.h"

namespace unisono::rendezvous {
namespace {

TEST(LaunchInfo, APlaceIsDescribedByWhoGaveIt) {
  LaunchInfo env = launch_info(0, 29500);
  EXPECT_EQ(describe_place(env), "MASTER_ADDR=127.0.0.1, MASTER_PORT=29500");
  env.place_source = "init_method file:///tmp/job";
  EXPECT_EQ(describe_place(env), "127.0.0.1:29500 (init_method file:///tmp/job)");
  env.master_addr = "::1";
  EXPECT_EQ(describe_place(env), "[::1]:29500 (init_method file:///tmp/job)");
}

TEST(LaunchInfo, Rank0ServesTheStoreUnlessTheLauncherDoes) {
  EXPECT_TRUE(serves_store(launch_info(0, 29500)));
  EXPECT_FALSE(serves_store(launch_info(1, 29500)));
  LaunchInfo of_agent = launch_info(0, 29500);
  of_agent.uses_agent_store = true;
  EXPECT_FALSE(serves_store(of_agent));
}

TEST(LaunchInfo, RanksOfOneNodeMeetOnItsLoopbackWhateverIsSaid) {
  LaunchInfo env = launch_info(0, 29500);
  env.master_addr = "node7";
  EXPECT_EQ(meeting_host(env), "node7");
  env.is_on_one_node = true;
  EXPECT_EQ(meeting_host(env), net::loopback_host());
}

}  // namespace
}  // namespace unisono::rendezvous
