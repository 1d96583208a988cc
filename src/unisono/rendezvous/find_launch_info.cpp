#include "unisono/rendezvous/find_launch_info.h"

#include <fmt/format.h>

#include <cstddef>
#include <optional>
#include <string_view>

#include "unisono/base/error.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variables.h"

namespace unisono::rendezvous {

const char* to_string(KeyValueSpaceKind kind) noexcept {
  switch (kind) {
    case KeyValueSpaceKind::kPmi:
      return "PMI";
    case KeyValueSpaceKind::kPmix:
      return "PMIx";
    case KeyValueSpaceKind::kNone:
      break;
  }
  return "none";
}

std::string meeting_host(const LaunchInfo& launch_info) {
  return launch_info.is_on_one_node ? net::loopback_host() : launch_info.master_addr;
}

bool serves_store(const LaunchInfo& launch_info) {
  return launch_info.rank == 0 && !launch_info.uses_agent_store;
}

std::string describe_place(const LaunchInfo& launch_info) {
  if (launch_info.place_source.empty()) {
    return fmt::format(
        "MASTER_ADDR={}, MASTER_PORT={}", launch_info.master_addr, launch_info.master_port);
  }
  return fmt::format("{} ({})",
                     net::join_host_port(launch_info.master_addr, launch_info.master_port),
                     launch_info.place_source);
}

namespace {

// The rank or the world size, with a description of the origin: "RANK=5 (given by the program)".
struct Figure {
  std::optional<int> value;
  std::string source;
  bool is_launchers = false;
  bool is_from_variable = false;  // RANK or WORLD_SIZE.
};

// Reads the program's option, or else the variable, or else the launcher's variable.
Figure find_figure(
    int option, VariableReader& reader, const char* name, const char* launchers_name, int least) {
  if (option != -1) {
    Figure given{.value = option,
                 .source = fmt::format("{}={} (given by the program)", name, option)};
    if (option < 0) {
      reader.complain(given.source + " is negative");
      given.value.reset();
    }
    return given;
  }
  Figure figure;
  figure.is_launchers = launchers_name != nullptr && !reader.is_set(name);
  figure.is_from_variable = !figure.is_launchers;
  const char* const variable = figure.is_launchers ? launchers_name : name;
  figure.value = reader.needed_int(variable, least);
  figure.source = fmt::format("{}={}", variable, figure.value.value_or(0));
  return figure;
}

void check(const Figure& rank,
           const Figure& size,
           VariableReader& reader,
           const Launcher* launcher) {
  if (size.value == 0) {
    reader.complain(size.source + " leaves no rank");
  } else if (size.value && rank.value && *rank.value >= *size.value) {
    reader.complain(fmt::format("{} is not below {}", rank.source, size.source));
  }
  // Every process that the launcher started is a rank, so both numbers must be equal.
  if (rank.is_launchers && !size.is_launchers && launcher->world_size != nullptr) {
    const std::optional<int> n_started = reader.needed_int(launcher->world_size, 1);
    if (n_started && size.value && *n_started != *size.value) {
      reader.complain(fmt::format("{} differs from {}={}, the number of processes that {} started",
                                  size.source,
                                  launcher->world_size,
                                  *n_started,
                                  launcher->command));
    }
  }
}

// Reads the host from MASTER_ADDR, or else from the launcher.
MasterHost read_host(VariableReader& reader, const Launcher* launcher) {
  return launcher == nullptr || reader.is_set("MASTER_ADDR")
             ? MasterHost{.address = reader.host("MASTER_ADDR", "MASTER_PORT")}
             : launcher->master_host(reader, *launcher);
}

// Fills in the address and the port. Requires result.key_value_space.
void set_place(const MasterHost& host,
               VariableReader& reader,
               const Launcher* launcher,
               LaunchInfo& result) {
  result.master_addr = host.address;
  result.is_on_one_node = host.is_on_one_node;
  const bool is_rank_zero_to_tell =
      !host.problem.empty() && result.key_value_space.kind != KeyValueSpaceKind::kNone;
  if (!host.problem.empty() && !is_rank_zero_to_tell) {
    const std::string& reason = result.key_value_space.problem;
    reader.complain(host.problem + (reason.empty() ? "" : "; " + reason));
  }
  if (!reader.is_set("MASTER_ADDR") && !reader.is_set("MASTER_PORT") && launcher != nullptr) {
    result.place_source = is_rank_zero_to_tell
                              ? "published by rank 0 in the launcher's key space"
                              : fmt::format("from the variables of {}", launcher->name);
  }
  if (is_rank_zero_to_tell) {
    result.master_port = reader.port("MASTER_PORT").value_or(0);
    return;
  }
  const bool is_given = launcher == nullptr || reader.is_set("MASTER_PORT");
  result.master_port =
      (is_given ? reader.port("MASTER_PORT") : launcher->master_port(reader, *launcher))
          .value_or(kDefaultMasterPort);
}

constexpr const char* kPmiFd = "PMI_FD";
constexpr const char* kPmixJob = "PMIX_NAMESPACE";

// The launcher of this process's launcher may have left variables here. Comparing the numbers
// detects this.
bool is_equal(const Environment& environment, const char* name, int number) {
  VariableReader reader(environment);
  return reader.optional_int(name, 0) == number;
}

std::string describe_absence(const Launcher& launcher) {
  if (std::string_view(launcher.name) == "Slurm") {
    return "srun gives these tasks no key space; srun --mpi=pmix or --mpi=pmi2 does, and the ranks "
           "agree on a secret by themselves";
  }
  return std::string(launcher.command) + " has set neither " + kPmiFd + " nor " + kPmixJob +
         " for this rank, so there is no key space for the ranks to agree in";
}

// Finds the key space that `launcher` offers to this process, from variables alone, without a
// connection. Returns no access if all ranks are on a single node, or if the ranks are not the
// launcher's processes, because the launcher serves only its processes.
KeyValueSpaceAccess find_key_space(const Environment& environment,
                                   const Launcher& launcher,
                                   int rank,
                                   int world_size) {
  VariableReader reader(environment);
  if (!launcher.has_key_space || launcher.master_host(reader, launcher).is_on_one_node) {
    return {};
  }
  const bool speaks_pmi = environment(kPmiFd) && is_equal(environment, "PMI_RANK", rank) &&
                          is_equal(environment, "PMI_SIZE", world_size);
  const bool speaks_pmix = environment(kPmixJob) && is_equal(environment, "PMIX_RANK", rank);
  // Other launchers, such as Slurm, may support both protocols.
  const bool speaks_pmi_first = std::string_view(launcher.rank) == "PMI_RANK";
  if (speaks_pmi && (speaks_pmi_first || !speaks_pmix)) {
    VariableReader pmi_reader(environment);
    const std::optional<int> fd = pmi_reader.optional_int(kPmiFd, 0);
    return fd ? KeyValueSpaceAccess{.kind = KeyValueSpaceKind::kPmi, .pmi_fd = *fd}
              : KeyValueSpaceAccess{.problem = pmi_reader.problems()};
  }
  return speaks_pmix ? KeyValueSpaceAccess{.kind = KeyValueSpaceKind::kPmix}
                     : KeyValueSpaceAccess{.problem = describe_absence(launcher)};
}

int read_local_rank(VariableReader& reader, const Launcher* launcher) {
  const bool is_launchers = launcher != nullptr && !reader.is_set("LOCAL_RANK");
  const char* const name = is_launchers ? launcher->local_rank : "LOCAL_RANK";
  const std::optional<int> rank = name == nullptr ? std::nullopt : reader.optional_int(name, 0);
  const char* const size_name = is_launchers ? launcher->local_world_size : "LOCAL_WORLD_SIZE";
  const std::optional<int> size =
      rank && size_name != nullptr ? reader.optional_int(size_name, 1) : std::nullopt;
  if (size && *rank >= *size) {
    reader.complain(fmt::format("{}={} is not below {}={}", name, *rank, size_name, *size));
  }
  return rank.value_or(-1);
}

// Describes the search for launchers, for users whose launcher was not recognized.
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

// Names the programs that set the variables, for the end of an error message.
std::string advice(const Environment& environment, const Launcher* launcher, bool is_all_given) {
  if (launcher == nullptr) {
    return "\"unisono run -n N program\" and torchrun set these variables; to start ranks by hand, "
           "set MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK for each of them" +
           (is_all_given ? "" : ". " + describe_search(environment));
  }
  if (launcher->world_size == nullptr) {
    return fmt::format(
        "{} has set {}={}, and sets no variable for the number of ranks: set WORLD_SIZE to it for "
        "all of them, or give init_process_group() a rank and a world_size",
        launcher->command,
        launcher->rank,
        environment(launcher->rank).value_or(""));
  }
  return fmt::format(
      "{} sets {} and {}; MASTER_ADDR, MASTER_PORT, WORLD_SIZE and RANK, which the user "
      "sets, come before what it sets",
      launcher->command,
      launcher->rank,
      launcher->world_size);
}

bool has_several_tasks_on_a_node(const Environment& environment) {
  VariableReader reader(environment);
  const std::vector<std::string> nodes = reader.nodes("SLURM_STEP_NODELIST");
  const int n_tasks = reader.needed_int("SLURM_NTASKS", 1).value_or(1);
  return !nodes.empty() && static_cast<std::size_t>(n_tasks) > nodes.size();
}

// MPI programs pass rank 0 of 0 to leave both numbers to the launcher.
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
  VariableReader reader(environment);
  LaunchInfo result;
  if (launcher != nullptr) {
    result.launcher = launcher->name;
  }
  const char* const name = launcher == nullptr ? "env://" : launcher->name;
  const MasterHost host = read_host(reader, launcher);
  const Figure size = find_figure(
      world_size, reader, "WORLD_SIZE", launcher == nullptr ? nullptr : launcher->world_size, 1);
  const Figure own =
      find_figure(rank, reader, "RANK", launcher == nullptr ? nullptr : launcher->rank, 0);
  check(own, size, reader, launcher);
  // If the world size is unknown, the missing world size must be the only complaint.
  if (launcher != nullptr && own.value && (size.value || launcher->world_size == nullptr)) {
    result.key_value_space =
        find_key_space(environment, *launcher, *own.value, size.value.value_or(0));
  }
  set_place(host, reader, launcher, result);
  // Each job of a launcher has a rank 0, so two jobs of a launcher are never combined into one.
  if (own.is_launchers) {
    result.job = launched_job(environment, *launcher);
  }
  result.from_variables = {.rank = own.is_from_variable,
                           .world_size = size.is_from_variable,
                           .address = reader.is_set("MASTER_ADDR")};
  result.rank = own.value.value_or(0);
  result.world_size = size.value.value_or(1);
  result.local_rank = read_local_rank(reader, launcher);
  result.uses_agent_store = has_agent_store(environment);
  result.origin = fmt::format("{} ({})", name, reader.found());
  if (!reader.problems().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("{} rendezvous: {}. {}",
                            name,
                            reader.problems(),
                            advice(environment, launcher, is_all_given)));
  }
  return result;
}

std::string launcher_name(const Environment& environment) {
  const Launcher* const launcher = find_launcher(environment);
  return launcher == nullptr ? "" : launcher->name;
}

std::string elastic_launcher(const Environment& environment) {
  if (!environment("TORCHELASTIC_RUN_ID")) {
    return "";
  }
  // torchrun gives each process a file for errors. Under unisono run the variable leads to a
  // descriptor of the launcher.
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
