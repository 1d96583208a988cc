#include "unisono/rendezvous/launchers/variables.h"

#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <set>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launchers/launcher.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"

namespace unisono::rendezvous {
namespace {

TEST(LauncherVariables, EachThatALauncherIsReadFromIsKnown) {
  std::set<std::string> known;
  for (const LauncherVariable& variable : launcher_variables()) {
    EXPECT_TRUE(known.insert(variable.name).second) << variable.name << " stands twice";
    EXPECT_STRNE(variable.meaning, "");
  }
  for (const Launcher& launcher : launchers()) {
    for (const char* name : {launcher.rank,
                             launcher.world_size,
                             launcher.local_rank,
                             launcher.local_world_size,
                             launcher.job}) {
      EXPECT_TRUE(name == nullptr || known.contains(name)) << name;
    }
  }
}

TEST(LauncherProcess, IsTheParentWhereNoShellStandsBetween) {
  EXPECT_EQ(process_that_set("UNISONO_TEST_NOBODY_SETS_THIS"), ::getppid());
  // Only a prefix of a name.
  EXPECT_EQ(process_that_set("PAT"), ::getppid());
}

TEST(LauncherProcess, IsNoneOfThoseThatWereStartedWithTheVariable) {
  if (std::getenv("PATH") == nullptr) {
    GTEST_SKIP() << "PATH is not set";
  }
  // This process's parent has inherited the variable.
  EXPECT_NE(process_that_set("PATH"), ::getppid());
}

TEST(LauncherProcess, HasSetWhatAVariableWasAtFirst) {
  const char* const path = std::getenv("PATH");
  if (path == nullptr) {
    GTEST_SKIP() << "PATH is not set";
  }
  const std::string entry = "PATH=" + std::string(path);
  ASSERT_EQ(::setenv("PATH", "/elsewhere", 1), 0);
  const std::optional<std::string> value = value_at_start("PATH", {entry});
  ASSERT_EQ(::setenv("PATH", path, 1), 0);
  EXPECT_EQ(value, path);
  EXPECT_EQ(value_at_start("PATH", {entry, entry + "/and/more"}), std::nullopt);
  EXPECT_EQ(value_at_start("UNISONO_TEST_NOBODY_SETS_THIS", {entry}), std::nullopt);
}

using test::throws_error;
using ::testing::ElementsAre;
using ::testing::Optional;
using ::testing::SizeIs;

auto expanding(const std::string& list) {
  return [list] { (void)expand_nodelist(list); };
}

// `scontrol` expands these lists to the same nodes.
const std::array kGoodLists{"node[1-3,7],gpu05",
                            "alpha",
                            "a,b,a",
                            "n[9-11]",
                            "n[09-11]",
                            "n[098-102]",
                            "n[8-010]",
                            "n[001-002,05]",
                            "n[5]",
                            "r[1-2]n[01-03]",
                            "n[1-2][3-4]",
                            "gpu-a[0-1],gpu-b.cluster[3]",
                            "x[0-9],y[0-9],z[10-20]"};

TEST(Nodelist, RangesStandForNamesInOrder) {
  EXPECT_THAT(expand_nodelist("node[1-3,7],gpu05"),
              ElementsAre("node1", "node2", "node3", "node7", "gpu05"));
  EXPECT_THAT(expand_nodelist("alpha"), ElementsAre("alpha"));
  EXPECT_THAT(expand_nodelist("b,a,b"), ElementsAre("b", "a", "b"));
  EXPECT_THAT(expand_nodelist("n[5]"), ElementsAre("n5"));
}

TEST(Nodelist, ZerosInFrontAreKept) {
  EXPECT_THAT(expand_nodelist("n[09-11]"), ElementsAre("n09", "n10", "n11"));
  EXPECT_THAT(expand_nodelist("n[098-100]"), ElementsAre("n098", "n099", "n100"));
  EXPECT_THAT(expand_nodelist("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(expand_nodelist("n[001,1]"), ElementsAre("n001", "n1"));
}

TEST(Nodelist, TheLastOfSeveralBracketsCountsFastest) {
  EXPECT_THAT(expand_nodelist("r[1-2]n[01-03]"),
              ElementsAre("r1n01", "r1n02", "r1n03", "r2n01", "r2n02", "r2n03"));
  EXPECT_THAT(expand_nodelist("n[1-2][3-4]-ib"),
              ElementsAre("n13-ib", "n14-ib", "n23-ib", "n24-ib"));
}

TEST(Nodelist, AMessageShowsTheListAndThePlace) {
  const std::vector<std::pair<std::string, std::string>> cases{
      {"node[1-3", "character 5: nothing closes this bracket"},
      {"a,n1]", "character 5: nothing opens"},
      {"n[7-4]", "character 3: the range ends before it begins"},
      {"", "character 1: a name is missing"},
      {"a,,b", "character 3: a name is missing"},
      {"a,", "character 3: a name is missing"},
      {"n[]", "character 3: a number is missing"},
      {"n[1,]", "character 5: a number is missing"},
      {"n[-3]", "character 3: a number is missing"},
      {"n[1-]", "character 5: a number is missing"},
      {"n[a-b]", "character 3: a number is missing"},
      {"n[1x]", "character 4: neither"},
      {"n[1-2[3]]", "character 6: neither"},
      {"n[18446744073709551615-18446744073709551616]", "character 3: too large a number"},
      {"a b", "character 2: a blank"}};
  for (const auto& [list, problem] : cases) {
    EXPECT_THAT(
        expanding(list),
        throws_error(ErrorCode::kInvalidArgument, "node list \"" + list + "\", " + problem));
  }
}

TEST(Nodelist, AListStandsForSoManyNamesOnly) {
  EXPECT_THAT(expand_nodelist("n[1-65536]"), SizeIs(kMaxNodes));
  for (const char* list : {"n[0-65536]",
                           "n[1-65536],m",
                           "n[1-65536,7]",
                           "n[1-256][1-257]",
                           "n[1-65536][1-65536]",
                           "n[0-999999999999999999]",
                           "n[1-256][1-256][1-2]"}) {
    EXPECT_THAT(expanding(list), throws_error(ErrorCode::kInvalidArgument, "more than 65536 names"))
        << list;
  }
}

// Returns the stdout of a command; "" if the command fails.
std::string output_of(const std::string& command) {
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(::popen(command.c_str(), "r"),
                                                             ::pclose);
  std::string output;
  std::array<char, 4096> buffer{};
  while (pipe != nullptr && std::fgets(buffer.data(), buffer.size(), pipe.get()) != nullptr) {
    output += buffer.data();
  }
  return output;
}

TEST(Nodelist, CountsMayComeSeveralTimes) {
  EXPECT_THAT(expand_counts("2(x3),1"), Optional(ElementsAre(2, 2, 2, 1)));
  EXPECT_THAT(expand_counts("4"), Optional(ElementsAre(4)));
  for (const char* text :
       {"", "0", "2(x0)", "2(x", "2(3)", "2,", ",2", "2 ", "2(x99999999)", "auto"}) {
    EXPECT_EQ(expand_counts(text), std::nullopt) << text;
  }
}

TEST(Nodelist, SlurmSaysTheSame) {
  if (output_of("command -v scontrol").empty()) {
    GTEST_SKIP() << "no scontrol here: it is in the package slurm-client";
  }
  // scontrol does not contact a server, but needs a configuration file that names a server.
  const test::TemporaryFolder folder;
  const std::string config =
      folder.write("slurm.conf", "ClusterName=none\nSlurmctldHost=localhost\n");
  for (const char* list : kGoodLists) {
    std::string expected;
    for (const std::string& name : expand_nodelist(list)) {
      expected += name + "\n";
    }
    EXPECT_EQ(output_of("SLURM_CONF=" + config + " scontrol show hostnames '" + list + "' 2>&1"),
              expected);
  }
}

}  // namespace
}  // namespace unisono::rendezvous
