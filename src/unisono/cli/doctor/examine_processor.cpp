#include "unisono/cli/doctor/examine_processor.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/cores.h"
#include "unisono/cli/doctor/system_files.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

// Cores' worth of time that the control group gets; nothing where it has no quota.
std::optional<double> read_quota(const fs::path& root) {
  std::istringstream both(read_text(root / "sys/fs/cgroup/cpu.max").value_or("max"));
  std::string quota;
  double period = 0;
  both >> quota >> period;
  if (const auto time = parse_whole(quota); time && period > 0) {
    return static_cast<double>(*time) / period;
  }
  const fs::path old = root / "sys/fs/cgroup/cpu";
  const auto time = read_number(old / "cpu.cfs_quota_us");
  const auto old_period = read_number(old / "cpu.cfs_period_us");
  if (time && *time > 0 && old_period && *old_period > 0) {
    return static_cast<double>(*time) / static_cast<double>(*old_period);
  }
  return std::nullopt;
}

Finding examine_count(const Place& place, const Cores& cores, std::optional<double> quota) {
  Finding finding{.state = State::kOk, .topic = "cores", .text = ""};
  finding.text = fmt::format("{} of {} may be used", cores.usable, cores.online);
  if (quota) {
    finding.text += fmt::format("; the control group's quota is {:.3g}", *quota);
  }
  const int n_ranks = place.is_in_job ? place.local_world_size : 1;
  if (n_ranks > cores.online) {
    finding.state = State::kWarning;
    finding.text += fmt::format(
        " by {} ranks of this node: those that wait give way to others instead of spinning, and "
        "messages take longer",
        n_ranks);
    finding.advice = "start fewer ranks, or give the job more cores";
  } else if (n_ranks > cores.usable) {
    finding.state = State::kInfo;
    finding.text += fmt::format(
        " by this rank, and {} are on its node: well if each has cores of its own", n_ranks);
    finding.advice =
        "where all are on the same cores, ranks that wait give way to others instead of spinning, "
        "and messages take longer: let the launcher pin them apart or not at all (mpirun --bind-to "
        "none, srun --cpu-bind=none), or give the job more cores";
  } else if (quota && *quota < n_ranks) {
    finding.state = State::kWarning;
    finding.advice =
        "a quota below the number of ranks stops all of them again and again; raise "
        "it (docker run --cpus, Kubernetes' limits)";
  }
  return finding;
}

Finding examine_threads(const Environment& environment, const Place& place, const Cores& cores) {
  const int n_ranks = place.is_in_job ? place.local_world_size : 1;
  const int fitting = std::max(1, cores.usable / n_ranks);
  Finding finding{.state = State::kOk, .topic = "threads", .text = ""};
  const std::optional<std::string> text = environment("OMP_NUM_THREADS");
  if (!text) {
    finding.text = "OMP_NUM_THREADS is not set";
    // A launcher that gives each rank one core leaves nothing to set.
    if (cores.usable <= fitting) {
      finding.state = State::kInfo;
      return finding;
    }
    finding.state = State::kWarning;
    finding.text += fmt::format(": each of {} ranks takes {} threads", n_ranks, cores.usable);
    finding.advice = fmt::format("OMP_NUM_THREADS={}", fitting);
    return finding;
  }
  // "4,2" are the numbers of nested levels.
  const auto n_threads = parse_whole(text->substr(0, text->find(',')));
  if (!n_threads || *n_threads < 1) {
    finding.state = State::kWarning;
    finding.text = fmt::format("OMP_NUM_THREADS=\"{}\" is no number of threads", *text);
    finding.advice = fmt::format("OMP_NUM_THREADS={}", fitting);
    return finding;
  }
  finding.text = fmt::format("OMP_NUM_THREADS={}", *text);
  if (*n_threads > fitting) {
    finding.state = State::kWarning;
    finding.text += fmt::format(
        " for each of {} rank{}, and {} core{}: threads that take turns on "
        "a core can make a step many times slower",
        n_ranks,
        n_ranks == 1 ? "" : "s",
        cores.usable,
        cores.usable == 1 ? "" : "s");
    finding.advice = fmt::format("OMP_NUM_THREADS={}", fitting);
  }
  return finding;
}

bool is_node(const std::string& name) {
  constexpr std::string_view kPrefix = "node";
  return name.starts_with(kPrefix) && parse_whole(name.substr(kPrefix.size()));
}

}  // namespace

Cores count_cores() {
  return {.usable = available_cores(),
          .online = static_cast<int>(std::max(1L, ::sysconf(_SC_NPROCESSORS_ONLN)))};
}

Findings examine_cores(const Environment& environment,
                       const Place& place,
                       const Cores& cores,
                       const fs::path& root) {
  return {examine_count(place, cores, read_quota(root)),
          examine_threads(environment, place, cores)};
}

Findings examine_numa(const fs::path& root) {
  const fs::path folder = root / "sys/devices/system/node";
  std::string text;
  int n_nodes = 0;
  for (const std::string& name : names_in(folder)) {
    if (is_node(name)) {
      ++n_nodes;
      text += fmt::format("{}{}: cores {}",
                          text.empty() ? "" : "; ",
                          name,
                          read_text(folder / name / "cpulist").value_or("unknown"));
    }
  }
  if (n_nodes == 0) {
    return {};
  }
  return {{.state = State::kInfo, .topic = "NUMA", .text = text}};
}

}  // namespace unisono::cli::doctor
