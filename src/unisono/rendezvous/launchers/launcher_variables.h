#pragma once

#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// A variable by which a launcher tells a process something.
struct LauncherVariable {
  std::string name;
  std::string value;
  std::string set_by;   ///< "srun".
  std::string meaning;  ///< "this task's rank".
};

/// Those of all known launchers that are set, in the order in which find_launch_info() looks at the
/// launchers; for people who look for the reason of a wrong start. No secret is among them.
[[nodiscard]] std::vector<LauncherVariable> launcher_variables(const Environment& environment);

}  // namespace unisono::rendezvous
