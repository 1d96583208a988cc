#include "unisono/launch/hosts/host_list.h"

#include <optional>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::launch::hosts {
namespace {

using test::TemporaryFolder;
using test::throws_error;
using ::testing::ElementsAre;

TEST(Hosts, HaveANumberOfRanksOrNone) {
  EXPECT_THAT(parse_hosts("alpha:4,beta:2"), ElementsAre(Host{"alpha", 4}, Host{"beta", 2}));
  EXPECT_THAT(parse_hosts("alpha,me@beta"), ElementsAre(Host{"alpha"}, Host{"me@beta"}));
  EXPECT_THAT(parse_hosts("alpha:1,beta:2,alpha:3"),
              ElementsAre(Host{"alpha", 4}, Host{"beta", 2}));
}

TEST(Hosts, InBracketsAreSeveral) {
  EXPECT_THAT(
      parse_hosts("n[09-11,20]:2,gpu05:1"),
      ElementsAre(
          Host{"n09", 2}, Host{"n10", 2}, Host{"n11", 2}, Host{"n20", 2}, Host{"gpu05", 1}));
}

TEST(Hosts, MayBeAddresses) {
  EXPECT_THAT(parse_hosts("10.0.0.1:2,[fd77::1]:3"),
              ElementsAre(Host{"10.0.0.1", 2}, Host{"fd77::1", 3}));
  EXPECT_THAT(parse_hosts("fd77::1,[fd77::2]"), ElementsAre(Host{"fd77::1"}, Host{"fd77::2"}));
}

TEST(Hosts, ThatAreNoneAreRefused) {
  for (const char* text : {"",
                           ",",
                           "alpha,",
                           ":4",
                           "alpha:",
                           "alpha:0",
                           "alpha:x",
                           "alpha:4097",
                           "alpha:-1",
                           "n[3-1]",
                           "n[1",
                           "-oProxyCommand=x",
                           "alpha:2,beta",
                           "alpha,beta:2",
                           "alpha,alpha"}) {
    EXPECT_THAT([&] { (void)parse_hosts(text); }, throws_error(ErrorCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(HostFile, MayBeOfOpenMpiMpichOrSlurm) {
  const TemporaryFolder folder;
  EXPECT_THAT(read_hostfile(folder.write(
                  "a", "# the big ones\nalpha slots=4 max_slots=8\n\n beta:2 # old\n")),
              ElementsAre(Host{"alpha", 4}, Host{"beta", 2}));
  EXPECT_THAT(read_hostfile(folder.write("b", "node[1-2]\nnode7")),
              ElementsAre(Host{"node1"}, Host{"node2"}, Host{"node7"}));
}

TEST(HostFile, ErrorsSayTheLine) {
  const TemporaryFolder folder;
  const std::string path = folder.write("hosts", "alpha slots=4\nbeta cores=4\n");
  EXPECT_THAT([&] { (void)read_hostfile(path); },
              throws_error(ErrorCode::kInvalidArgument, path, "line 2", "cores=4"));
  const std::string empty = folder.write("empty", "# none\n");
  EXPECT_THAT([&] { (void)read_hostfile(empty); },
              throws_error(ErrorCode::kInvalidArgument, "names no host"));
  EXPECT_THAT([&] { (void)read_hostfile(folder.path() + "/nothing"); },
              throws_error(ErrorCode::kSystem, "nothing"));
}

}  // namespace
}  // namespace unisono::launch::hosts
