#include "unisono/rendezvous/local_rank.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <exception>
#include <map>
#include <optional>

#include "unisono/base/error.h"
#include "unisono/rendezvous/launch_info.h"
#include "unisono/rendezvous/launchers/launcher.h"
#include "unisono/rendezvous/launchers/variables.h"

namespace unisono::rendezvous {
namespace {

// Formats several numbers: "0 and 2", "0, 2 and 4".
std::string listed(const std::vector<int>& numbers) {
  const auto last = numbers.end() - 1;
  return fmt::format("{} and {}", fmt::join(numbers.begin(), last, ", "), *last);
}

// Describes each GPU that several ranks share: "ranks 0 and 1 are both on cuda:0". The arguments of
// `format` are the ranks, "both" or "all", and the number of the GPU.
std::string describe_sharers(const std::vector<Device>& devices,
                             int first_rank,
                             fmt::format_string<std::string, const char*, const int&> format) {
  std::map<int, std::vector<int>> ranks;
  for (std::size_t i = 0; i < devices.size(); ++i) {
    if (devices[i].type == DeviceType::kCuda) {
      ranks[devices[i].index].push_back(first_rank + static_cast<int>(i));
    }
  }
  std::string text;
  for (const auto& [index, sharers] : ranks) {
    if (sharers.size() > 1) {
      text += (text.empty() ? "" : ", ") +
              fmt::format(format, listed(sharers), sharers.size() == 2 ? "both" : "all", index);
    }
  }
  return text;
}

}  // namespace

Device device_of_local_rank(int local_rank, int n_gpus) {
  return n_gpus == 0 ? Device{} : Device{.type = DeviceType::kCuda, .index = local_rank % n_gpus};
}

std::optional<int> own_local_rank(const Environment& environment) {
  VariableReader reader(environment);
  const Launcher* const launcher = find_launcher(environment);
  const bool is_launchers = launcher != nullptr && !reader.is_set("LOCAL_RANK");
  const char* const name = is_launchers ? launcher->local_rank : "LOCAL_RANK";
  const std::optional<int> rank = name == nullptr ? std::nullopt : reader.optional_int(name, 0);
  if (!reader.problems().empty()) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("{}; launchers set it, from 0 on each node, and it selects the GPU of a rank",
                    reader.problems()));
  }
  return rank;
}

std::string describe_shared_gpus(int n_local_ranks, int n_gpus) {
  std::vector<Device> devices;
  for (int local_rank = 0; local_rank < n_local_ranks; ++local_rank) {
    devices.push_back(device_of_local_rank(local_rank, n_gpus));
  }
  const std::string text = describe_sharers(devices, 0, "local ranks {} {} use cuda:{}");
  return text.empty()
             ? ""
             : text +
                   fmt::format(": there are {} ranks for {} GPU{}, and they slow each other down",
                               n_local_ranks,
                               n_gpus,
                               n_gpus == 1 ? "" : "s");
}

std::string explain_same_gpu(const std::vector<Device>& devices, int first_rank) {
  const std::string text = describe_sharers(devices, first_rank, "ranks {} are {} on cuda:{}");
  return text.empty()
             ? ""
             : text +
                   ": choose each rank's device by LOCAL_RANK, and start no more ranks than GPUs";
}

std::string describe(const Device& device) {
  return device.type == DeviceType::kCpu ? "cpu" : fmt::format("cuda:{}", device.index);
}

namespace {

std::vector<int> read_counts(VariableReader& reader, const char* name) {
  if (!reader.is_set(name)) {
    return {};
  }
  const std::string text = reader.text(name);
  const std::optional<std::vector<int>> counts = expand_counts(text);
  if (!counts) {
    reader.complain(fmt::format("{}=\"{}\" is not a list of numbers like 4(x2),3", name, text));
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
    reader.complain(fmt::format("{}=\"{}\" is not a list of GPUs' numbers", name, text));
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
