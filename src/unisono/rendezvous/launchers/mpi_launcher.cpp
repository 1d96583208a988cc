#include "unisono/rendezvous/launchers/mpi_launcher.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/net/loopback.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/launcher_process.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

// Nothing after a complaint, where it can't be known.
std::optional<bool> is_on_one_node(VariableReader& reader, const Launcher& launcher) {
  if (launcher.world_size == nullptr || launcher.local_world_size == nullptr) {
    return false;
  }
  const std::optional<int> all = reader.needed_int(launcher.world_size, 1);
  const std::optional<int> local = reader.optional_int(launcher.local_world_size, 1);
  return all ? std::optional(all == 1 || all == local) : std::nullopt;
}

}  // namespace

bool mpi_is_on_several_nodes(VariableReader& reader, const Launcher& launcher) {
  return !is_on_one_node(reader, launcher).value_or(true);
}

MasterHost mpi_master_host(VariableReader& reader, const Launcher& launcher) {
  const std::optional<bool> is_one = is_on_one_node(reader, launcher);
  if (!is_one) {
    return {};
  }
  if (*is_one) {
    return {.address = net::loopback_host(), .is_on_one_node = true};
  }
  if (reader.is_set("SLURM_JOB_NODELIST")) {
    const std::vector<std::string> nodes = reader.nodes("SLURM_JOB_NODELIST");
    return {.address = nodes.empty() ? "" : nodes.front()};
  }
  return {.address = "",
          .problem = fmt::format("MASTER_ADDR is not set, and {} does not say that all ranks are "
                                 "on one node: set it for all ranks to the name of rank 0's node, "
                                 "and MASTER_PORT to a port that is free there",
                                 launcher.command)};
}

std::optional<std::uint16_t> mpi_master_port(VariableReader& reader, const Launcher& launcher) {
  if (launcher.job != nullptr && reader.is_set(launcher.job)) {
    return port_of(reader.text(launcher.job));
  }
  if (is_on_one_node(reader, launcher).value_or(false)) {
    const std::optional<pid_t> starter = process_that_set(launcher.rank);
    return starter ? std::optional(port_of(static_cast<std::uint64_t>(*starter))) : std::nullopt;
  }
  const std::optional<int> slurm_job = reader.optional_int("SLURM_JOB_ID", 0);
  return slurm_job ? std::optional(port_of(static_cast<std::uint64_t>(*slurm_job))) : std::nullopt;
}

}  // namespace unisono::rendezvous
