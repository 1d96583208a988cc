#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {

struct Launcher;

/// Where rank 0 is.
struct MasterHost {
  std::string address = {};  ///< Empty after a complaint, and where `problem` is not.
  bool is_on_one_node = false;
  /// What to complain of where rank 0 can't tell its address in the launcher's key space.
  std::string problem = {};
};

/// How a launcher tells a process what it is. A new one is a row in launcher.cpp.
struct Launcher {
  const char* name;
  const char* command;  ///< Who sets the variables, for messages.
  /// The variables; null where the launcher has none for it.
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
  const char* job;   ///< Names the job among those of a machine.
  const char* step;  ///< And this part of it, where a job may have several with ranks of their own.
  bool (*has_started)(const Environment& environment);
  MasterHost (*master_host)(VariableReader& reader, const Launcher& launcher);
  /// Whether it says, or can't rule out, that others than this node have ranks; null where its key
  /// space is of no use.
  bool (*is_on_several_nodes)(VariableReader& reader, const Launcher& launcher);
  /// Nothing where it tells none.
  std::optional<std::uint16_t> (*master_port)(VariableReader& reader, const Launcher& launcher);
};

/// All, in the order in which they are looked for: who is started by whom stands first.
[[nodiscard]] std::span<const Launcher> launchers();

/// The one that started a process with this environment; null if none did.
[[nodiscard]] const Launcher* find_launcher(const Environment& environment);

/// One of the ports above those that systems give out by themselves (on Linux up to 60999).
[[nodiscard]] std::uint16_t port_of(std::uint64_t number);
[[nodiscard]] std::uint16_t port_of(std::string_view name);

}  // namespace unisono::rendezvous
