#include "unisono/launch/hosts/run_on_hosts.h"

#include <utility>

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
  EXPECT_THAT(parse_hosts("me@[fd77::1]:3,me@[fd77::2]:1"),
              ElementsAre(Host{"me@fd77::1", 3}, Host{"me@fd77::2", 1}));
}

TEST(Hosts, ThatComeAgainHaveARankForEachTime) {
  EXPECT_THAT(parse_hosts("a,a,b"), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts("b,a,b,b"), ElementsAre(Host{"b", 3}, Host{"a", 1}));
  EXPECT_THAT(parse_hosts("n[1,1,2],n2"), ElementsAre(Host{"n1", 2}, Host{"n2", 2}));
  EXPECT_THAT(parse_hosts("me@a,a"), ElementsAre(Host{"me@a"}, Host{"a"}));
}

TEST(Hosts, MayHaveBlanksBetweenThem) {
  EXPECT_THAT(parse_hosts("a, b"), ElementsAre(Host{"a"}, Host{"b"}));
  EXPECT_THAT(parse_hosts(" a:2 ,\tb:1 "), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts("a\nb\r\n"), ElementsAre(Host{"a"}, Host{"b"}));
}

TEST(Hosts, MayBeInTheFormsOfLsf) {
  EXPECT_THAT(parse_hosts("a a b"), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts("a 2 b 4"), ElementsAre(Host{"a", 2}, Host{"b", 4}));
  EXPECT_THAT(parse_hosts("a 2"), ElementsAre(Host{"a", 2}));
  EXPECT_THAT(parse_hosts("a 2 me@b 3"), ElementsAre(Host{"a", 2}, Host{"me@b", 3}));
  EXPECT_THAT(parse_hosts("2*a,b:1"), ElementsAre(Host{"a", 2}, Host{"b", 1}));
  EXPECT_THAT(parse_hosts("2*a 1*b"), ElementsAre(Host{"a", 2}, Host{"b", 1}));
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
                           "alpha,alpha:2",
                           "alpha 2 beta",
                           "alpha 0",
                           "0*alpha",
                           "*alpha",
                           "@alpha",
                           "me@you@alpha",
                           "me[1-2]@alpha",
                           "1**@alpha",
                           "alpha:4096,alpha:1"}) {
    EXPECT_THAT([&] { (void)parse_hosts(text); }, throws_error(ErrorCode::kInvalidArgument, ""))
        << text;
  }
}

TEST(Hosts, WhereNoMachineCanBeAreRefusedWithTheFormThatWorks) {
  for (const auto& [text, form] :
       std::vector<std::pair<std::string, std::string>>{{"alpha,fe80::1", "write fe80::1%eth0"},
                                                        {"[fe80::1]:4", "write fe80::1%eth0"},
                                                        {"::1:29574", "write [::1]:29574"},
                                                        {"[::1,beta", "write [::1]"},
                                                        {"me@[::1,beta", "write [::1]"},
                                                        {"256.1.1.1:2", "0 to 255"},
                                                        {"node1/0*4+node2/0*4", "write alpha:4"},
                                                        {"alpha/0", "no name has a \"/\""},
                                                        {"\ufeffalpha", "\\uFEFFalpha"}}) {
    EXPECT_THAT([&text = text] { (void)parse_hosts(text); },
                throws_error(ErrorCode::kInvalidArgument, form))
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

TEST(HostFile, MayHaveALineForEachRank) {
  const TemporaryFolder folder;
  EXPECT_THAT(read_hostfile(folder.write("pbs", "alpha\nalpha\nbeta\nalpha\n")),
              ElementsAre(Host{"alpha", 3}, Host{"beta", 1}));
}

TEST(HostFile, MayBeOfGridEngineOrLsf) {
  const TemporaryFolder folder;
  EXPECT_THAT(read_hostfile(folder.write("sge",
                                         "alpha 2 all.q@alpha UNDEFINED\n"
                                         "beta 4 all.q@beta <NULL>\n"
                                         "gamma 2 all.q@gamma 0,0:0,1\n")),
              ElementsAre(Host{"alpha", 2}, Host{"beta", 4}, Host{"gamma", 2}));
  EXPECT_THAT(read_hostfile(folder.write("lsf", "2*alpha\nbeta:1\ngamma 3\n")),
              ElementsAre(Host{"alpha", 2}, Host{"beta", 1}, Host{"gamma", 3}));
}

// All encodings of the same content.
TEST(HostFile, IsReadInWhateverWayItsLinesEnd) {
  const TemporaryFolder folder;
  for (const std::string text : {"alpha slots=2\nbeta slots=1\n",
                                 "alpha slots=2\nbeta slots=1",
                                 "alpha slots=2\r\nbeta slots=1\r\n",
                                 "\ufeffalpha slots=2\nbeta slots=1\n",
                                 "\ufeffalpha slots=2\r\nbeta slots=1\r\n\r\n",
                                 "alpha slots=2\nbeta slots=1\n\n\n"}) {
    EXPECT_THAT(read_hostfile(folder.write("hosts", text)),
                ElementsAre(Host{"alpha", 2}, Host{"beta", 1}))
        << ::testing::PrintToString(text);
  }
}

TEST(HostFile, NamesAnEncodingThatItIsNotIn) {
  const TemporaryFolder folder;
  using namespace std::string_literals;
  EXPECT_THAT(
      [&] {
        (void)read_hostfile(folder.write("wide",
                                         "\xff\xfe"
                                         "a\0\n\0"s));
      },
      throws_error(ErrorCode::kCorruptData, "wide", "UTF-16"));
  EXPECT_THAT([&] { (void)read_hostfile(folder.write("old", "alpha\rbeta\r")); },
              throws_error(ErrorCode::kCorruptData, "old", "line 1", "CR"));
}

TEST(HostFile, ErrorsSayTheLine) {
  const TemporaryFolder folder;
  const std::string path = folder.write("hosts", "alpha slots=4\nbeta cores=4\n");
  EXPECT_THAT([&] { (void)read_hostfile(path); },
              throws_error(ErrorCode::kInvalidArgument, path, "line 2", "cores=4", "beta slots=4"));
  for (const std::string line : {"beta gamma",
                                 "beta 0,1 0 1",
                                 "beta 1,2 0 1",
                                 "beta 3,4",
                                 "beta 2 x",
                                 "::1:29574",
                                 "bet\u200ba"}) {
    EXPECT_THAT([&] { (void)read_hostfile(folder.write("wrong", "alpha\n# none\n" + line)); },
                throws_error(ErrorCode::kInvalidArgument, "wrong, line 3"))
        << line;
  }
  const std::string empty = folder.write("empty", "# none\n");
  EXPECT_THAT([&] { (void)read_hostfile(empty); },
              throws_error(ErrorCode::kInvalidArgument, "lists no hosts"));
  EXPECT_THAT([&] { (void)read_hostfile(folder.path() + "/nothing"); },
              throws_error(ErrorCode::kSystem, "nothing"));
}

}  // namespace
}  // namespace unisono::launch::hosts
