#pragma once

#include <optional>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/rendezvous/launch_info.h"

namespace unisono::cli::doctor {

/// This process's place in the job that its environment describes, as far as that can be found.
struct Place {
  bool is_in_job = false;  ///< Somebody started it as a rank, well or badly.
  std::optional<rendezvous::LaunchInfo> launch_info = {};
  bool is_sound = true;  ///< Else the assignment is what read_in_part() could read.
  int local_world_size = 1;

  /// There are others to meet.
  [[nodiscard]] bool has_peers() const {
    return is_in_job && is_sound && launch_info && launch_info->world_size > 1;
  }
};

struct LauncherExamination {
  Place place;
  Findings findings;
};

/// Who started this process, as which rank, and what is wrong with that.
[[nodiscard]] LauncherExamination examine_launcher(const Environment& environment);

/// A row for each variable of a launcher that is set.
[[nodiscard]] Findings list_launcher_variables(const Environment& environment);

}  // namespace unisono::cli::doctor
