#pragma once

#include <optional>
#include <span>
#include <string_view>

#include "unisono/pipeline/schedule.h"
#include "unisono/pipeline/simulate.h"

namespace unisono::pipeline {

/// What a schedule is made for. All stages take the same time.
struct Setting {
  int n_ranks;
  int n_chunks;
  int stages_per_rank;  ///< Of those schedules that leave it open.
};

/// The time in which a rank does not compute, as a formula has it.
struct IdleTime {
  double time;
  bool is_upper_bound = false;
};

/// A schedule that has a name.
struct KnownSchedule {
  const char* name;
  const char* torchs_name;  ///< PyTorch's name of it, in small letters; null: it has none.
  const char* help;         ///< A few words.
  /// How many stages a rank has; 0: as many as are asked for.
  int stages_per_rank;
  Schedule (*make)(const Setting& setting);
  /// Where messages take no time. Nothing where the formula does not hold for that setting or for
  /// these times of a stage.
  std::optional<IdleTime> (*idle_time)(const Setting& setting, const StageTimes& times);
};

/// All of them.
[[nodiscard]] std::span<const KnownSchedule> known_schedules();

/// The schedule of that name, or of PyTorch's name for it in any letters: "GPipe", "1F1B",
/// "Interleaved1F1B", "ZBVZeroBubble", "DualPipeV", also with "Schedule" in front.
///
/// Throws Error(kInvalidArgument), with the names that there are, and the nearest one to a schedule
/// that only PyTorch has.
[[nodiscard]] const KnownSchedule& find_schedule(std::string_view name);

}  // namespace unisono::pipeline
