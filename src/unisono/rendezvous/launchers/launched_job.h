#pragma once

#include <string>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

struct Launcher;

/// What tells the job whose ranks `launcher` has numbered from its others:
/// "SLURM_JOB_ID=4540, SLURM_STEP_ID=3". The same in all its processes; empty where it says
/// nothing.
[[nodiscard]] std::string launched_job(const Environment& environment, const Launcher& launcher);

/// True where both tell what job they are of by the same variables, and are of different ones. Of
/// ranks that different launchers have started nothing is known.
[[nodiscard]] bool are_different_jobs(const std::string& one, const std::string& other);

}  // namespace unisono::rendezvous
