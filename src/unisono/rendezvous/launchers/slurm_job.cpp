#include "unisono/rendezvous/launchers/slurm_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/nodelist.h"
#include "unisono/rendezvous/launchers/variable_reader.h"

namespace unisono::rendezvous {
namespace {

std::vector<int> read_counts(VariableReader& reader, const char* name) {
  if (!reader.is_set(name)) {
    return {};
  }
  const std::string text = reader.text(name);
  const std::optional<std::vector<int>> counts = expand_counts(text);
  if (!counts) {
    reader.complain(fmt::format("{}=\"{}\" is no list of numbers like 4(x2),3", name, text));
  }
  return counts.value_or(std::vector<int>());
}

// "0,2-3".
std::vector<int> read_gpus(VariableReader& reader, const char* name) {
  std::vector<int> gpus;
  if (!reader.is_set(name)) {
    return gpus;
  }
  const std::string text = reader.text(name);
  try {
    for (const std::string& id : expand_nodelist(fmt::format("[{}]", text))) {
      gpus.push_back(std::stoi(id));
    }
  } catch (const std::exception&) {
    reader.complain(fmt::format("{}=\"{}\" is no list of GPUs' numbers", name, text));
  }
  return gpus;
}

int shared_out(int n, int among) {
  return (n + among - 1) / among;
}

}  // namespace

SlurmJob slurm_job(const Environment& environment) {
  VariableReader reader(environment);
  SlurmJob job;
  const bool has_step = reader.is_set("SLURM_STEP_NODELIST");
  job.hostnames = reader.nodes(has_step ? "SLURM_STEP_NODELIST" : "SLURM_JOB_NODELIST");
  job.size = reader.needed_int("SLURM_NTASKS", 1).value_or(1);
  job.rank = reader.needed_int("SLURM_PROCID", 0).value_or(0);
  job.local_rank = reader.needed_int("SLURM_LOCALID", 0).value_or(0);
  job.tasks_of_nodes =
      read_counts(reader, has_step ? "SLURM_STEP_TASKS_PER_NODE" : "SLURM_TASKS_PER_NODE");
  const std::vector<int> asked = read_counts(reader, "SLURM_NTASKS_PER_NODE");
  const auto node = static_cast<std::size_t>(reader.optional_int("SLURM_NODEID", 0).value_or(0));
  const int even = shared_out(job.size, std::max(1, static_cast<int>(job.hostnames.size())));
  const int here = node < job.tasks_of_nodes.size() ? job.tasks_of_nodes[node] : even;
  job.ntasks_per_node = asked.empty() ? here : asked[node < asked.size() ? node : 0];
  const int cpus = reader.optional_int("SLURM_CPUS_ON_NODE", 1).value_or(here);
  job.cpus_per_task =
      reader.optional_int("SLURM_CPUS_PER_TASK", 1).value_or(std::max(1, cpus / here));
  job.gpu_ids =
      read_gpus(reader, reader.is_set("SLURM_STEP_GPUS") ? "SLURM_STEP_GPUS" : "SLURM_JOB_GPUS");
  const std::string first_node = job.hostnames.empty() ? "" : job.hostnames.front();
  job.master_addr =
      reader.is_set("MASTER_ADDR") ? reader.host("MASTER_ADDR", "MASTER_PORT") : first_node;
  job.master_port = (reader.is_set("MASTER_PORT") ? reader.port("MASTER_PORT") : slurm_port(reader))
                        .value_or(kDefaultMasterPort);
  if (job.rank >= job.size) {
    reader.complain(
        fmt::format("SLURM_PROCID={} is not below SLURM_NTASKS={}", job.rank, job.size));
  }
  if (!reader.problems().empty()) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("Slurm: {}. srun sets these variables", reader.problems()));
  }
  return job;
}

}  // namespace unisono::rendezvous
