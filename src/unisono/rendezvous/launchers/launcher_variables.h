#pragma once

#include <span>

namespace unisono::rendezvous {

/// A variable by which a launcher tells a process something.
struct LauncherVariable {
  const char* name;
  const char* set_by;   ///< "srun".
  const char* meaning;  ///< "this task's rank".
};

/// Those of all known launchers, in the order in which find_launch_info() looks at the launchers;
/// for people who look for the reason of a wrong start. No secret is among them.
[[nodiscard]] std::span<const LauncherVariable> launcher_variables();

}  // namespace unisono::rendezvous
