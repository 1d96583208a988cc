#include "unisono/rendezvous/launchers/launcher_variables.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/testing/launched_ranks.h"

namespace unisono::rendezvous {
namespace {

using ::testing::ElementsAre;
using ::testing::Field;
using ::testing::IsEmpty;

TEST(LauncherVariables, AreThoseThatAreSet) {
  EXPECT_THAT(launcher_variables(fake({{"PATH", "/bin"}, {"UNISONO_SECRET", "s"}})), IsEmpty());
  const auto found = launcher_variables(fake({{"SLURM_PROCID", "x"}, {"RANK", "3"}}));
  EXPECT_THAT(found,
              ElementsAre(Field(&LauncherVariable::name, "RANK"),
                          Field(&LauncherVariable::name, "SLURM_PROCID")));
  EXPECT_EQ(found[1].value, "x");
  EXPECT_EQ(found[1].set_by, "srun, and Slurm for batch scripts");
  EXPECT_EQ(found[1].meaning, "this task's rank; always 0 in a batch script");
}

TEST(LauncherVariables, EachThatALauncherIsReadFromIsKnown) {
  std::set<std::string> known;
  const Environment all = [](const char*) { return std::string("1"); };
  for (const LauncherVariable& variable : launcher_variables(all)) {
    EXPECT_TRUE(known.insert(variable.name).second) << variable.name << " stands twice";
    EXPECT_NE(variable.meaning, "");
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

}  // namespace
}  // namespace unisono::rendezvous
