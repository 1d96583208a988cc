#include "unisono/rendezvous/launchers/slurm_launcher.h"

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

// Slurm's SLURM_MAX_NORMAL_STEP_ID: from here on numbers stand for batch scripts, interactive
// shells and the like.
constexpr std::int64_t kFirstSpecialStep = 0xfffffff0;
constexpr std::int64_t kMaxId = std::numeric_limits<std::uint32_t>::max();

// Coprime to the number of ports, and about the golden section of it: steps that follow each other
// are far from each other, and from the first steps of the jobs that follow.
constexpr std::int64_t kStepStride = 2803;

}  // namespace

bool is_slurm_task(const Environment& environment) {
  VariableReader reader(environment);
  const std::int64_t step = reader.number("SLURM_STEP_ID", 0, kMaxId, false).value_or(0);
  const bool is_in_step = reader.is_set("SLURM_STEP_ID") || reader.is_set("SLURM_STEP_NODELIST");
  return is_in_step && step < kFirstSpecialStep;
}

bool is_slurm_script(const Environment& environment) {
  return environment("SLURM_JOB_ID") && !is_slurm_task(environment);
}

MasterHost slurm_master_host(VariableReader& reader, const Launcher& /*launcher*/) {
  const std::vector<std::string> nodes = reader.nodes("SLURM_STEP_NODELIST");
  return {.address = nodes.empty() ? "" : nodes.front(), .is_on_one_node = nodes.size() == 1};
}

bool slurm_is_on_several_nodes(VariableReader& reader, const Launcher& /*launcher*/) {
  return reader.nodes("SLURM_STEP_NODELIST").size() > 1;
}

std::optional<std::uint16_t> slurm_master_port(VariableReader& reader, const Launcher& launcher) {
  const std::optional<std::int64_t> job = reader.number(launcher.job, 0, kMaxId, true);
  const std::optional<std::int64_t> step = reader.is_set("PYTORCH_VERSION")
                                               ? std::nullopt
                                               : reader.number(launcher.step, 0, kMaxId, false);
  if (!job) {
    return std::nullopt;
  }
  return port_of(static_cast<std::uint64_t>(*job + kStepStride * step.value_or(0)));
}

}  // namespace unisono::rendezvous
