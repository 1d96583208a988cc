#include "unisono/rendezvous/launchers/launcher_variables.h"

#include <set>
#include <string>

#include <gtest/gtest.h>

#include "unisono/rendezvous/launchers/launcher.h"

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

}  // namespace
}  // namespace unisono::rendezvous
