#include "unisono/cli/doctor/examine_launcher.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/cli/doctor/read_in_part.h"
#include "unisono/cli/doctor/system_files.h"
#include "unisono/net/host_port.h"
#include "unisono/rendezvous/find_launch_info.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher_variables.h"
#include "unisono/rendezvous/launchers/slurm_job.h"

namespace unisono::cli::doctor {
namespace {

constexpr const char* kLauncherTopic = "launcher";

// Errors of rendezvous/ have what is wrong first, then ". " and what to do.
Finding problem_of(const Error& error) {
  const std::string message = error.what();
  const std::size_t end = message.find(". ");
  return {.state = State::kProblem,
          .topic = kLauncherTopic,
          .text = message.substr(0, end),
          .advice = end == std::string::npos ? "" : message.substr(end + 2)};
}

std::string describe_starter(const Environment& environment,
                             const rendezvous::LaunchInfo& launch_info) {
  if (!launch_info.launcher.empty()) {
    return launch_info.launcher;
  }
  const std::string launcher = rendezvous::elastic_launcher(environment);
  return launcher.empty() ? "RANK, WORLD_SIZE and MASTER_ADDR" : launcher;
}

Finding describe(const Environment& environment, const rendezvous::LaunchInfo& launch_info) {
  std::string text = fmt::format("started by {}: rank {} of {}",
                                 describe_starter(environment, launch_info),
                                 launch_info.rank,
                                 launch_info.world_size);
  if (launch_info.local_rank >= 0) {
    text += fmt::format(", local rank {}", launch_info.local_rank);
  }
  if (launch_info.master_addr.empty()) {
    text += fmt::format("; the ranks meet where rank 0 tells them in the launcher's key space ({})",
                        to_string(launch_info.key_value_space.kind));
    return {.state = State::kOk, .topic = kLauncherTopic, .text = text};
  }
  text += fmt::format(
      "; the ranks meet at {}, {}",
      net::join_host_port(rendezvous::meeting_host(launch_info), launch_info.master_port),
      launch_info.uses_agent_store ? "which the launcher serves" : "which rank 0 serves");
  return {.state = State::kOk, .topic = kLauncherTopic, .text = text};
}

Finding describe_no_job(const Environment& environment) {
  Finding finding{.state = State::kInfo,
                  .topic = kLauncherTopic,
                  .text = "none: this process is no rank of a job",
                  .advice = "unisono run -n N unisono doctor looks at a job of N ranks"};
  if (environment("SLURM_JOB_ID")) {
    finding.text = fmt::format("this is the script or the shell of Slurm job {}, not a task",
                               environment("SLURM_JOB_ID").value_or(""));
    finding.advice = "srun unisono doctor looks at the tasks";
  }
  return finding;
}

std::optional<std::int64_t> number(const Environment& environment, const char* name) {
  return parse_whole(environment(name).value_or(""));
}

int local_world_size(const Environment& environment, const rendezvous::LaunchInfo& launch_info) {
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
      return 1;  // describe_slurm() says what is wrong.
    }
  }
  return launch_info.is_on_one_node ? launch_info.world_size : 1;
}

Findings examine_local_ranks(const Environment& environment,
                             const rendezvous::LaunchInfo& launch_info) {
  const auto size = number(environment, "LOCAL_WORLD_SIZE");
  if (!size || *size <= launch_info.world_size) {
    return {};
  }
  return {{.state = State::kProblem,
           .topic = kLauncherTopic,
           .text = fmt::format(
               "LOCAL_WORLD_SIZE={} is more than WORLD_SIZE={}", *size, launch_info.world_size),
           .advice = "LOCAL_RANK counts the ranks of a node from 0, LOCAL_WORLD_SIZE is how many "
                     "they are; let one launcher set all of them, or unset both"}};
}

// For programs beside ours that know nothing of launchers.
Findings name_missing_variables(const Environment& environment) {
  std::string assignments;
  for (const auto& variable : rendezvous::missing_torch_variables(environment)) {
    assignments += fmt::format(" {}={}", variable.name, variable.value);
  }
  if (assignments.empty()) {
    return {};
  }
  return {{.state = State::kInfo,
           .topic = kLauncherTopic,
           .text = "found without variables of torchrun",
           .advice = "programs of torch.distributed that don't use Unisono need" + assignments}};
}

Findings describe_slurm(const Environment& environment) {
  if (!environment("SLURM_PROCID") || !environment("SLURM_NTASKS")) {
    return {};
  }
  try {
    const rendezvous::SlurmJob job = rendezvous::slurm_job(environment);
    std::string nodes;
    for (const std::string& name : job.hostnames) {
      nodes += (nodes.empty() ? "" : ", ") + name;
    }
    std::string gpus;
    for (const int id : job.gpu_ids) {
      gpus += fmt::format("{}{}", gpus.empty() ? "" : ",", id);
    }
    return {{.state = State::kInfo,
             .topic = "Slurm",
             .text = fmt::format("{} tasks on {}; {} core{} for each; {}",
                                 job.size,
                                 nodes,
                                 job.cpus_per_task,
                                 job.cpus_per_task == 1 ? "" : "s",
                                 gpus.empty() ? "no GPUs" : "GPUs here: " + gpus)}};
  } catch (const Error& error) {
    return {{.state = State::kWarning,
             .topic = "Slurm",
             .text = error.what(),
             .advice = "start by srun, and leave its variables as they are"}};
  }
}

}  // namespace

LauncherExamination examine_launcher(const Environment& environment) {
  LauncherExamination result;
  try {
    result.place.is_in_job = rendezvous::is_in_job(environment);
    if (!result.place.is_in_job) {
      result.findings = {describe_no_job(environment)};
      append(result.findings, describe_slurm(environment));
      return result;
    }
    const rendezvous::LaunchInfo launch_info = rendezvous::find_launch_info(environment);
    result.place.launch_info = launch_info;
    result.findings = {describe(environment, launch_info)};
    result.place.local_world_size = local_world_size(environment, launch_info);
    append(result.findings, examine_local_ranks(environment, launch_info));
    if (!launch_info.master_addr.empty()) {
      append(result.findings, name_missing_variables(environment));
    }
  } catch (const Error& error) {
    result.place.is_in_job = true;
    result.place.is_sound = false;
    result.place.launch_info = read_in_part(environment);
    result.findings = {problem_of(error)};
    if (result.place.launch_info->rank >= 0) {
      append(result.findings, examine_local_ranks(environment, *result.place.launch_info));
    }
    result.place.local_world_size = local_world_size(environment, *result.place.launch_info);
  }
  append(result.findings, describe_slurm(environment));
  return result;
}

Findings list_launcher_variables(const Environment& environment) {
  Findings findings;
  const std::string launcher = rendezvous::elastic_launcher(environment);
  for (const auto& [name, set_by, meaning] : rendezvous::launcher_variables()) {
    const std::optional<std::string> value = environment(name);
    if (!value) {
      continue;
    }
    const bool is_torchruns = std::string_view(set_by).find("torchrun") != std::string_view::npos;
    findings.push_back(
        {.state = State::kInfo,
         .topic = "variable",
         .text = fmt::format("{}={}: {}; set by {}",
                             name,
                             *value,
                             meaning,
                             is_torchruns && !launcher.empty() ? launcher : set_by)});
  }
  return findings;
}

}  // namespace unisono::cli::doctor
