#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

struct Launcher;

/// Where rank 0 is.
struct MasterHost {
  std::string address = {};     ///< Empty after a complaint, and where `problem` is not.
  bool is_on_one_node = false;  ///< False, too, where that can't be known.
  /// What to complain of where rank 0 can't tell its address in the launcher's key space.
  std::string problem = {};
};

/// How a launcher tells a process what it is. A new one is a row in launcher.cpp.
struct Launcher {
  const char* name;
  const char* command;  ///< Who sets the variables, for messages.
  /// The variables; null where the launcher has none for it.
  const char* rank = nullptr;
  const char* world_size = nullptr;
  const char* local_rank = nullptr;
  const char* local_world_size = nullptr;
  const char* job = nullptr;  ///< Names the job among those of a machine.
  /// And this part of it, where a job may have several with ranks of their own.
  const char* step = nullptr;
  bool has_key_space = true;  ///< Its processes may have one.
  bool (*has_started)(const Environment& environment);
  MasterHost (*master_host)(VariableReader& reader, const Launcher& launcher);
  /// Nothing where it tells none.
  std::optional<std::uint16_t> (*master_port)(VariableReader& reader, const Launcher& launcher);
};

/// All, in the order in which they are looked for: who is started by whom stands first.
[[nodiscard]] std::span<const Launcher> launchers();

/// The one that started a process with this environment; null if none did.
[[nodiscard]] const Launcher* find_launcher(const Environment& environment);

/// The port where the ranks of this job step of Slurm meet; nothing without SLURM_JOB_ID, which
/// `reader` has then complained of.
[[nodiscard]] std::optional<std::uint16_t> slurm_port(VariableReader& reader);

/// What tells the job whose ranks `launcher` has numbered from its others:
/// "SLURM_JOB_ID=4540, SLURM_STEP_ID=3". The same in all its processes; empty where it says
/// nothing.
[[nodiscard]] std::string launched_job(const Environment& environment, const Launcher& launcher);

/// True where both tell what job they are of by the same variables, and are of different ones. Of
/// ranks that different launchers have started nothing is known.
[[nodiscard]] bool are_different_jobs(const std::string& one, const std::string& other);

}  // namespace unisono::rendezvous
