#include "unisono/rendezvous/find_launch_info.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variable_reader.h"
#include "unisono/rendezvous/methods/env.h"

namespace unisono::rendezvous {
namespace {

// For who expected a launcher to be recognized.
std::string describe_search(const Environment& environment) {
  std::string names;
  for (const Launcher& launcher : launchers()) {
    names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", launcher.name, launcher.rank);
  }
  std::string found = fmt::format("No launcher that sets others was found; looked for {}", names);
  if (const std::optional<std::string> job = environment("SLURM_JOB_ID")) {
    return fmt::format(
        "This is the script or the shell of Slurm job {}, not a task: \"srun program\" in it makes "
        "tasks. {}",
        *job,
        found);
  }
  return found;
}

bool has_several_tasks_on_a_node(const Environment& environment) {
  VariableReader reader(environment);
  const std::vector<std::string> nodes = reader.nodes("SLURM_STEP_NODELIST");
  const int n_tasks = reader.needed_int("SLURM_NTASKS", 1).value_or(1);
  return !nodes.empty() && static_cast<std::size_t>(n_tasks) > nodes.size();
}

// Programs of MPI give rank 0 of 0, and leave both to it.
bool is_left_to_launcher(const Environment& environment, int rank, int world_size) {
  return rank == 0 && world_size == 0 &&
         (environment("WORLD_SIZE") || find_launcher(environment) != nullptr);
}

}  // namespace

LaunchInfo find_launch_info(const Environment& environment, int rank, int world_size) {
  if (is_left_to_launcher(environment, rank, world_size)) {
    return find_launch_info(environment);
  }
  const bool is_all_given = (rank >= 0 || environment("RANK")) &&
                            (world_size >= 0 || environment("WORLD_SIZE")) &&
                            environment("MASTER_ADDR");
  const Launcher* const launcher = is_all_given ? nullptr : find_launcher(environment);
  try {
    return read_env(environment, rank, world_size, launcher);
  } catch (const Error& error) {
    if (is_all_given || launcher != nullptr) {
      throw;
    }
    throw Error(error.code(), fmt::format("{}. {}", error.what(), describe_search(environment)));
  }
}

std::string launcher_name(const Environment& environment) {
  const Launcher* const launcher = find_launcher(environment);
  return launcher == nullptr ? "" : launcher->name;
}

std::string elastic_launcher(const Environment& environment) {
  if (!environment("TORCHELASTIC_RUN_ID")) {
    return "";
  }
  // torchrun gives each process a file for its errors; that of unisono run is one of the launcher's
  // descriptors.
  const std::string errors = environment("TORCHELASTIC_ERROR_FILE").value_or("/proc/");
  return errors.starts_with("/proc/") ? "unisono run" : "torchrun";
}

bool is_in_job(const Environment& environment) {
  return environment("RANK") || environment("WORLD_SIZE") ||
         (find_launcher(environment) != nullptr && find_launch_info(environment).world_size > 1);
}

bool has_launcher_of_several(const Environment& environment) {
  const Launcher* const launcher = environment("RANK") ? nullptr : find_launcher(environment);
  if (launcher == nullptr || launcher->world_size == nullptr) {
    return false;
  }
  VariableReader reader(environment);
  return reader.optional_int(launcher->world_size, 1).value_or(1) > 1;
}

std::vector<Variable> missing_torch_variables(const Environment& environment) {
  const LaunchInfo launch_info = find_launch_info(environment);
  if (launch_info.master_addr.empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} rendezvous: MASTER_ADDR is not set. Unisono's rank 0 chooses a "
                            "place by itself; for programs that read the variables, set it to the "
                            "name of rank 0's node, and MASTER_PORT to a port that is free there",
                            launch_info.launcher));
  }
  std::vector<Variable> variables{{"MASTER_ADDR", launch_info.master_addr},
                                  {"MASTER_PORT", std::to_string(launch_info.master_port)},
                                  {"WORLD_SIZE", std::to_string(launch_info.world_size)},
                                  {"RANK", std::to_string(launch_info.rank)}};
  if (launch_info.local_rank >= 0) {
    variables.push_back({"LOCAL_RANK", std::to_string(launch_info.local_rank)});
  }
  if (launcher_name(environment) == "Slurm" && has_several_tasks_on_a_node(environment)) {
    variables.push_back({"OMP_NUM_THREADS", "1"});
  }
  std::erase_if(variables, [&](const Variable& variable) {
    return environment(variable.name.c_str()).has_value();
  });
  return variables;
}

}  // namespace unisono::rendezvous
