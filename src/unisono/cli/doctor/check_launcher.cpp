#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/setting_checks.h"
#include "unisono/cli/doctor/checks.h"
#include "unisono/net/host.h"
#include "unisono/rendezvous/key_value_space/key_value_space.h"
#include "unisono/rendezvous/launchers/variables.h"
#include "unisono/rendezvous/local_rank.h"
#include "unisono/rendezvous/secret.h"

namespace unisono::cli::doctor {
namespace {

using rendezvous::LaunchInfo;

// Values of variables; std::nullopt hides a variable.
using Changes = std::map<std::string, std::optional<std::string>>;

Environment with(const Environment& environment, Changes changes) {
  return [&environment, changes = std::move(changes)](const char* name) {
    const auto change = changes.find(name);
    return change == changes.end() ? environment(name) : change->second;
  };
}

std::optional<LaunchInfo> try_find(const Environment& environment, int rank, int world_size) {
  try {
    return rendezvous::find_launch_info(environment, rank, world_size);
  } catch (const Error&) {
    return std::nullopt;
  }
}

// Returns address and port, for a rank of a world in which every number is correct.
LaunchInfo find_meeting_place(const Environment& environment) {
  const auto try_meeting_place = [&](Changes changes) {
    return try_find(with(environment, std::move(changes)), 0, std::numeric_limits<int>::max());
  };
  LaunchInfo unknown;
  unknown.master_port = 0;
  if (const auto whole = try_meeting_place({})) {
    return *whole;
  }
  if (auto without_port = try_meeting_place({{"MASTER_PORT", std::nullopt}})) {
    without_port->master_port = 0;
    return *without_port;
  }
  if (!environment("MASTER_PORT")) {
    return unknown;
  }
  LaunchInfo without_address = try_meeting_place({{"MASTER_ADDR", "localhost"}}).value_or(unknown);
  without_address.master_addr.clear();
  return without_address;
}

std::optional<std::int64_t> number(const Environment& environment, const char* name) {
  return parse_whole(environment(name).value_or(""));
}

int find_local_world_size(const Environment& environment, const LaunchInfo& launch_info) {
  for (const char* const name :
       {"LOCAL_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "PMI_LOCAL_SIZE"}) {
    const std::optional<std::int64_t> size = number(environment, name);
    if (size && *size > 0 && *size <= launch_info.world_size) {
      return static_cast<int>(*size);
    }
  }
  if (launch_info.launcher == "Slurm") {
    try {
      return rendezvous::slurm_job(environment).ntasks_per_node;
    } catch (const Error&) {
      return 1;  // check_slurm() reports the error.
    }
  }
  return launch_info.is_on_one_node ? launch_info.world_size : 1;
}

Findings describe_no_job(const Environment& environment) {
  const std::optional<std::string> job = environment("SLURM_JOB_ID");
  return job ? info("this is the script or the shell of Slurm job " + *job + ", not a task",
                    "srun unisono doctor examines the tasks")
             : info("none: this process is not a rank of a job",
                    "unisono run -n N unisono doctor examines a job of N ranks");
}

Findings describe_job(const Environment& environment, const LaunchInfo& launch_info) {
  std::string launcher = launch_info.launcher;
  if (launcher.empty()) {
    launcher = rendezvous::elastic_launcher(environment);
  }
  const std::string text =
      fmt::format("started by {}: rank {} of {}",
                  launcher.empty() ? "RANK, WORLD_SIZE and MASTER_ADDR" : launcher,
                  launch_info.rank,
                  launch_info.world_size) +
      (launch_info.local_rank < 0 ? "" : fmt::format(", local rank {}", launch_info.local_rank));
  if (launch_info.master_addr.empty()) {
    return ok(text + "; rank 0 publishes the meeting place in the launcher's key space (" +
              to_string(launch_info.key_value_space.kind) + ")");
  }
  return ok(
      text + "; the ranks meet at " +
      net::join_host_port(rendezvous::meeting_host(launch_info), launch_info.master_port) +
      (launch_info.uses_agent_store ? ", which the launcher serves" : ", which rank 0 serves"));
}

// Messages of rendezvous/ have the fault first, then ". " and the remedy.
Findings describe_error(const std::string& error) {
  const std::size_t end = error.find(". ");
  return problem(error.substr(0, end), end == std::string::npos ? "" : error.substr(end + 2));
}

std::string describe_source(const base::Config& config) {
  if (!config.secret.empty()) {
    return config.secret_file.empty() ? "from UNISONO_SECRET"
                                      : "from UNISONO_SECRET; UNISONO_SECRET_FILE is ignored";
  }
  return config.secret_file.empty() ? "from " + config.home + "/.unisono/secret"
                                    : "from UNISONO_SECRET_FILE=" + config.secret_file;
}

// Returns the remedy if no secret is usable.
std::string advise_secret(const base::Config& config) {
  if (rendezvous::is_secret_given(config) || config.home.empty()) {
    return "\"unisono secret FILE\" writes a good file for UNISONO_SECRET_FILE";
  }
  std::error_code error;
  const bool is_there = std::filesystem::exists(config.home + "/.unisono/secret", error);
  return std::string(is_there ? "fix the file, or delete it and " : "") +
         "type, on one node: unisono secret";
}

}  // namespace

LaunchInfo partial_launch_info(const Environment& environment) {
  const Environment without_locals =
      with(environment, {{"LOCAL_RANK", "0"}, {"LOCAL_WORLD_SIZE", std::nullopt}});
  LaunchInfo result = find_meeting_place(without_locals);
  const std::optional<LaunchInfo> numbers = try_find(
      with(without_locals, {{"MASTER_ADDR", "localhost"}, {"MASTER_PORT", std::nullopt}}), -1, -1);
  result.rank = numbers ? numbers->rank : -1;
  result.world_size = numbers ? numbers->world_size : 1;
  result.local_rank = -1;
  return result;
}

JobPlace find_place(const Environment& environment) {
  JobPlace place;
  try {
    place.is_in_job = rendezvous::is_in_job(environment);
    if (!place.is_in_job) {
      return place;
    }
    place.launch_info = rendezvous::find_launch_info(environment);
    if (!place.launch_info.master_addr.empty()) {
      place.missing_variables = rendezvous::missing_torch_variables(environment);
    }
  } catch (const Error& error) {
    place = {
        .is_in_job = true, .launch_info = partial_launch_info(environment), .error = error.what()};
  }
  place.local_world_size = find_local_world_size(environment, place.launch_info);
  return place;
}

base::Config readable_config(const Environment& environment) {
  base::Config ignored;
  const auto rows = config_table();
  return read_config([&](const char* name) -> std::optional<std::string> {
    const std::optional<std::string> value = environment(name);
    const auto row = std::ranges::find_if(
        rows, [&](const ConfigRow& each) { return std::string_view(each.name) == name; });
    return value && (row == rows.end() || row->parse(*value, ignored)) ? value : std::nullopt;
  });
}

Findings check_launcher(const Machine& machine) {
  const JobPlace& place = machine.place;
  if (!place.is_in_job) {
    return describe_no_job(machine.environment);
  }
  Findings findings = place.error.empty() ? describe_job(machine.environment, place.launch_info)
                                          : describe_error(place.error);
  const auto local_size = number(machine.environment, "LOCAL_WORLD_SIZE");
  const int world_size = place.launch_info.world_size;
  if (local_size && *local_size > world_size && place.launch_info.rank >= 0) {
    append(findings,
           problem(fmt::format(
                       "LOCAL_WORLD_SIZE={} is more than WORLD_SIZE={}", *local_size, world_size),
                   "LOCAL_RANK counts the ranks of a node from 0, LOCAL_WORLD_SIZE is their "
                   "number; let one launcher set all of them, or unset both"));
  }
  std::vector<std::string> assignments;
  for (const auto& [name, value] : place.missing_variables) {
    assignments.push_back(fmt::format("{}={}", name, value));
  }
  // Programs that read only torchrun's variables need these.
  if (!assignments.empty()) {
    append(findings,
           info("found without variables of torchrun",
                "programs of torch.distributed that don't use Unisono need " +
                    join(assignments, " ")));
  }
  return findings;
}

Findings check_slurm(const Machine& machine) {
  if (!machine.environment("SLURM_PROCID") || !machine.environment("SLURM_NTASKS")) {
    return {};
  }
  try {
    const rendezvous::SlurmJob job = rendezvous::slurm_job(machine.environment);
    return info(fmt::format("{} tasks on {}; {} for each; {}{}",
                            job.size,
                            join(job.hostnames, ", "),
                            count_of(job.cpus_per_task, "core"),
                            job.gpu_ids.empty() ? "no GPUs" : "GPUs here: ",
                            fmt::join(job.gpu_ids, ",")));
  } catch (const Error& error) {
    return warning(error.what(), "start by srun, and leave its variables as they are");
  }
}

Findings check_launcher_variables(const Machine& machine) {
  Findings findings;
  const std::string elastic = rendezvous::elastic_launcher(machine.environment);
  for (const auto& [name, set_by, meaning] : rendezvous::launcher_variables()) {
    if (const std::optional<std::string> value = machine.environment(name)) {
      const bool is_torchruns = std::string_view(set_by).find("torchrun") != std::string_view::npos;
      append(findings,
             info(fmt::format("{}={}: {}; set by ", name, *value, meaning) +
                  (is_torchruns && !elastic.empty() ? elastic : set_by)));
    }
  }
  return findings;
}

Findings check_settings(const Machine& machine) {
  Findings findings;
  try {
    (void)read_config(machine.environment);
  } catch (const Error& error) {
    findings = problem(error.what(), "unisono config describes the values of each setting");
  }
  for (const ConfigRow& row : config_table()) {
    const std::optional<std::string> value = machine.environment(row.name);
    if (value && std::string_view(row.name) != "UNISONO_SECRET") {
      append(findings, info(std::string(row.name) + "=" + *value));
    }
  }
  for (const std::string& name : machine.setting_names) {
    if (std::ranges::none_of(config_table(), [&](const auto& row) { return name == row.name; })) {
      const std::string similar = similar_setting(name);
      append(findings,
             warning(name + " is not a setting of Unisono, and has no effect",
                     (similar.empty() ? "" : "is " + similar + " meant? ") +
                         "unisono config lists the settings"));
    }
  }
  return findings;
}

// Shows the source of the secret and no part of the secret.
Findings check_secret(const Machine& machine) {
  const base::Config& config = machine.config;
  LaunchInfo launch_info = machine.place.launch_info;
  if (rendezvous::needs_key_value_space(config, launch_info) &&
      !rendezvous::is_secret_given(config)) {
    return ok(std::string("from the launcher's key space (") +
              to_string(launch_info.key_value_space.kind) + "), where rank 0 puts one");
  }
  if (launch_info.master_addr.empty() || launch_info.is_on_one_node) {
    launch_info.master_addr = net::loopback_host();
  }
  std::string secret;
  try {
    secret = rendezvous::find_secret(config, launch_info);
  } catch (const Error& error) {
    return problem(error.what(), advise_secret(config));
  }
  constexpr std::size_t kLeastBytes = 16;
  if (secret.empty() && config.tls) {
    const auto severity = machine.place.is_in_job ? problem : warning;
    return severity("none, and UNISONO_TLS=on makes its key from one",
                    "set UNISONO_SECRET or UNISONO_SECRET_FILE, the same on every rank, or "
                    "UNISONO_TLS=off; unisono run makes a secret by itself",
                    "");
  }
  if (secret.empty()) {
    return info("none: enough for ranks that meet on this machine's loopback",
                "for several nodes \"unisono secret\" writes one into ~/.unisono, in a home that "
                "they share; unisono run makes one for a job on this machine");
  }
  return warn_if(secret.size() < kLeastBytes,
                 ok(describe_source(config)),
                 fmt::format("; it has less than {} characters, and can be guessed", kLeastBytes),
                 "\"unisono secret FILE\" writes a good one");
}

}  // namespace unisono::cli::doctor
