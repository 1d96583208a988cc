#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <ctime>
#include <sstream>
#include <utility>

#include "unisono/cli/doctor/checks.h"

namespace unisono::cli::doctor {
namespace {

namespace fs = std::filesystem;

// A rank with a model hardly fits into less.
constexpr std::uint64_t kLittleMemory = std::uint64_t{512} << 20;

// Returns true for 5.3 or newer; "5.10.0-8-amd64" is newer.
bool has_pidfd_open(const std::string& release) {
  int major = 0;
  int minor = 0;
  char dot = 0;
  std::istringstream in(release);
  if (!(in >> major >> dot)) {
    return true;  // The release is unknown.
  }
  in >> minor;
  return std::pair(major, minor) >= std::pair(5, 3);
}

std::string find_container(const Machine& machine) {
  for (const std::string name : {"APPTAINER_CONTAINER", "SINGULARITY_CONTAINER"}) {
    if (const auto image = machine.environment(name.c_str())) {
      return "Apptainer (" + name + "=" + *image + ")";
    }
  }
  if (machine.environment("KUBERNETES_SERVICE_HOST")) {
    return "a Kubernetes pod (KUBERNETES_SERVICE_HOST)";
  }
  if (!machine.glob("run/.containerenv").empty()) {
    return "Podman (/run/.containerenv)";
  }
  if (!machine.glob(".dockerenv").empty()) {
    return "Docker (/.dockerenv)";
  }
  const std::string groups = machine.text("proc/1/cgroup").value_or("");
  for (const std::string word : {"docker", "kubepods", "containerd", "lxc"}) {
    if (groups.find(word) != std::string::npos) {
      return word + " (/proc/1/cgroup)";
    }
  }
  const auto name = machine.environment("container");
  return name ? *name + " (the variable container)" : "";
}

bool has_ptrace_capability(const Machine& machine) {
  constexpr int kHexadecimal = 16;
  constexpr unsigned kSysPtrace = 19;
  const std::string set = machine.value("proc/self/status", "CapEff:").value_or("0");
  std::uint64_t bits = 0;
  (void)std::from_chars(set.data(), set.data() + set.size(), bits, kHexadecimal);
  return (bits >> kSysPtrace & 1) != 0;
}

// Returns the quota of the control group in cores, or std::nullopt without a quota.
std::optional<double> read_quota(const Machine& machine) {
  std::istringstream both(machine.text("sys/fs/cgroup/cpu.max").value_or("max"));
  std::string quota;
  double period = 0;
  both >> quota >> period;
  if (const auto time = parse_whole(quota); time && period > 0) {
    return static_cast<double>(*time) / period;
  }
  // Control groups version 1.
  const auto time = machine.number("sys/fs/cgroup/cpu/cpu.cfs_quota_us");
  const auto old_period = machine.number("sys/fs/cgroup/cpu/cpu.cfs_period_us");
  if (time && *time > 0 && old_period && *old_period > 0) {
    return static_cast<double>(*time) / static_cast<double>(*old_period);
  }
  return std::nullopt;
}

std::optional<std::uint64_t> meminfo(const Machine& machine, std::string_view name) {
  const std::string text = machine.value("proc/meminfo", name).value_or("");
  const auto number = parse_whole(std::string_view(text).substr(0, text.find(' ')));
  return number && *number >= 0 ? std::optional(static_cast<std::uint64_t>(*number) * 1024)
                                : std::nullopt;
}

struct MemoryLimit {
  std::uint64_t limit;
  std::uint64_t used;

  [[nodiscard]] std::uint64_t left() const { return limit - std::min(limit, used); }
};

// Returns the tightest limit of this process's control group and of all groups above it. In a
// container the process's own group is the root below /sys.
std::optional<MemoryLimit> cgroup_limit(const Machine& machine) {
  const fs::path root = "sys/fs/cgroup";
  std::optional<MemoryLimit> tightest;
  const auto add = [&](const fs::path& limit_file, const fs::path& used_file) {
    const std::int64_t limit = machine.number(limit_file).value_or(-1);
    if (limit >= 0 && (!tightest || static_cast<std::uint64_t>(limit) < tightest->limit)) {
      const std::int64_t used = std::max<std::int64_t>(0, machine.number(used_file).value_or(0));
      tightest = {static_cast<std::uint64_t>(limit), static_cast<std::uint64_t>(used)};
    }
  };
  fs::path group =
      root / fs::path(machine.value("proc/self/cgroup", "0::").value_or("/")).relative_path();
  for (; !group.empty() && group != "sys/fs"; group = group.parent_path()) {
    add(group / "memory.max", group / "memory.current");
  }
  for (const fs::path& old : {root / "memory", root}) {
    add(old / "memory.limit_in_bytes", old / "memory.usage_in_bytes");
  }
  return tightest;
}

}  // namespace

Findings check_kernel(const Machine& machine) {
  const std::string release =
      machine.text("proc/sys/kernel/osrelease").value_or("of unknown version");
  std::string name = machine.value("etc/os-release", "PRETTY_NAME=").value_or("");
  std::erase(name, '"');
  const std::string text = "Linux " + release + (name.empty() ? "" : "; ") + name;
  return has_pidfd_open(release)
             ? info(text)
             : problem(text + "; it has no pidfd_open, which detects the death of a rank",
                       "Linux 5.3 or newer");
}

Findings check_container(const Machine& machine) {
  const std::string container = find_container(machine);
  return container.empty() ? Findings() : info("this seems to be " + container);
}

Findings check_clock(const Machine& machine) {
  // 2025-01-01; a clock that was set shows a later time.
  constexpr std::time_t kEarliest = 1'735'689'600;
  const std::time_t seconds = std::chrono::system_clock::to_time_t(machine.now);
  return warn_if(
      seconds < kEarliest,
      info(fmt::format("{:%Y-%m-%d %H:%M:%S} UTC, {}",
                       fmt::gmtime(seconds),
                       machine.is_clock_synchronized ? "synchronized"
                                                     : "not synchronized according to the kernel")),
      "",
      "set it, best by NTP (chrony): logs and certificates depend on it");
}

Findings check_single_copy(const Machine& machine) {
  const std::string cost = ": large messages within a node are copied twice";
  if (!machine.single_copy_error.empty()) {
    return warning(machine.single_copy_error + cost,
                   "let the container's seccomp profile allow process_vm_readv (docker run "
                   "--cap-add SYS_PTRACE does)");
  }
  constexpr std::int64_t kNeverAllowed = 3;
  const std::int64_t scope = machine.number("proc/sys/kernel/yama/ptrace_scope").value_or(0);
  if (scope == 0 || (scope < kNeverAllowed && has_ptrace_capability(machine))) {
    return ok("ranks of a user may read each other's memory (process_vm_readv)");
  }
  return warning("kernel.yama.ptrace_scope=" + std::to_string(scope) +
                     " keeps ranks from reading each other's memory" + cost,
                 scope == kNeverAllowed ? "it can be changed at the next start of the machine only"
                                        : "sysctl kernel.yama.ptrace_scope=0, as root");
}

Findings check_cores(const Machine& machine) {
  const int n_ranks = machine.place.local_world_size;
  const std::optional<double> quota = read_quota(machine);
  const std::string text =
      fmt::format("{} of {} may be used", machine.usable_cores, machine.online_cores) +
      (quota ? fmt::format("; the control group's quota is {:.3g}", *quota) : "");
  if (n_ranks > machine.online_cores) {
    return warning(text + fmt::format(" by {} ranks of this node: ranks that wait yield to others "
                                      "instead of spinning, and messages take longer",
                                      n_ranks),
                   "start fewer ranks, or give the job more cores");
  }
  if (n_ranks > machine.usable_cores) {
    return info(
        fmt::format(
            "{} by this rank, and {} are on its node: this is fine if each has cores of its own",
            text,
            n_ranks),
        "where all are on the same cores, ranks that wait yield to others instead of spinning, and "
        "messages take longer: let the launcher pin them apart or not at all (mpirun --bind-to "
        "none, srun --cpu-bind=none), or give the job more cores");
  }
  return warn_if(quota && *quota < n_ranks,
                 ok(text),
                 "",
                 "a quota below the number of ranks stops all of them again and again; raise it "
                 "(docker run --cpus, Kubernetes' limits)");
}

Findings check_threads(const Machine& machine) {
  const int n_ranks = machine.place.local_world_size;
  const int n_cores = machine.usable_cores;
  const int n_fitting = std::max(1, n_cores / n_ranks);
  const std::string advice = "OMP_NUM_THREADS=" + std::to_string(n_fitting);
  const std::optional<std::string> value = machine.environment("OMP_NUM_THREADS");
  if (!value) {
    return warn_if(n_cores > n_fitting,
                   info("OMP_NUM_THREADS is not set"),
                   fmt::format(": each of {} ranks takes {} threads", n_ranks, n_cores),
                   advice);
  }
  // "4,2" are the numbers of nested levels.
  const auto n_threads = parse_whole(value->substr(0, value->find(',')));
  if (!n_threads || *n_threads < 1) {
    return warning("OMP_NUM_THREADS=\"" + *value + "\" is not a number of threads", advice);
  }
  return warn_if(*n_threads > n_fitting,
                 ok("OMP_NUM_THREADS=" + *value),
                 " for each of " + count_of(n_ranks, "rank") + ", and " +
                     count_of(n_cores, "core") +
                     ": threads that take turns on a core can make a step many times slower",
                 advice);
}

Findings check_numa(const Machine& machine) {
  std::vector<std::string> nodes;
  for (const fs::path& folder : machine.glob("sys/devices/system/node/node[0-9]*")) {
    nodes.push_back(folder.filename().string() + ": cores " +
                    machine.text(folder / "cpulist").value_or("unknown"));
  }
  return nodes.empty() ? Findings() : info(join(nodes, "; "));
}

Findings check_memory(const Machine& machine) {
  Findings findings;
  const auto total = meminfo(machine, "MemTotal:");
  const auto available = meminfo(machine, "MemAvailable:");
  if (total && available) {
    append(findings,
           warn_if(*available < kLittleMemory,
                   ok(format_bytes(*available) + " of " + format_bytes(*total) + " are available"),
                   "",
                   "end other programs here; the kernel kills processes when memory runs out"));
  }
  const std::optional<MemoryLimit> group = cgroup_limit(machine);
  // Control groups version 1 report a number near 2^63 instead of no limit.
  if (group && (!total || group->limit < *total)) {
    append(findings,
           warn_if(group->left() < kLittleMemory,
                   ok("its control group may use " + format_bytes(group->limit) + ", of which " +
                      format_bytes(group->left()) + " are left"),
                   "",
                   "give the container or the job more memory (docker run --memory, srun --mem, "
                   "Kubernetes' limits); at its limit the kernel kills processes"));
  }
  constexpr std::int64_t kStrict = 2;
  if (machine.number("proc/sys/vm/overcommit_memory") == kStrict) {
    const MemoryLimit commit{meminfo(machine, "CommitLimit:").value_or(0),
                             meminfo(machine, "Committed_AS:").value_or(0)};
    const std::string text = "vm.overcommit_memory=2: the kernel promises " +
                             format_bytes(commit.left()) +
                             " more, then refuses memory even where some is free";
    const std::string advice = "sysctl vm.overcommit_memory=0, as root, lifts that";
    append(findings, commit.left() >= kLittleMemory ? info(text, advice) : warning(text, advice));
  }
  return findings;
}

Findings check_huge_pages(const Machine& machine) {
  const std::string file = "sys/kernel/mm/transparent_hugepage/shmem_enabled";
  const std::string words = machine.text(file).value_or("");
  const std::size_t begin = words.find('[');  // The word in brackets is in force.
  const std::size_t end = words.find(']', begin);
  if (end == std::string::npos) {
    return {};
  }
  const std::string word = words.substr(begin + 1, end - begin - 1);
  const std::string text = "shmem_enabled is \"" + word + "\": ";
  if (word != "never" && word != "deny") {
    return info(text + "large blocks of the memory that ranks share may have them");
  }
  return info(text +
                  "the memory that ranks share has small pages, and operations on tens of MiB "
                  "in it take a tenth more time",
              "echo advise >/" + file + ", as root");
}

Findings check_shared_memory(const Machine& machine) {
  return machine.arena_error.empty()
             ? ok("a rank can make memory that its node's other ranks map (memfd_create)")
             : problem(machine.arena_error,
                       "ranks of a node share memory by memfd_create: let the container's seccomp "
                       "profile and the limits of memory allow it");
}

Findings check_dev_shm(const Machine& machine) {
  constexpr std::uint64_t kSmall = std::uint64_t{256} << 20;
  if (!machine.shm_bytes) {
    return {};
  }
  return warn_if(*machine.shm_bytes < kSmall,
                 info(format_bytes(*machine.shm_bytes) + "; Unisono uses none of it"),
                 ", but PyTorch's DataLoader, MPI and NCCL do",
                 "docker run --shm-size=1g, or in Kubernetes an emptyDir of medium Memory there");
}

Findings check_address_space(const Machine& machine) {
  const rlim_t limit = machine.address_space.rlim_cur;
  return limit == RLIM_INFINITY
             ? Findings()
             : warning("limited to " + format_bytes(limit) +
                           " (ulimit -v); a rank maps an arena for each rank of its node, as large "
                           "as the machine's memory, most of it never used",
                       "ulimit -v unlimited, or a small UNISONO_ARENA_BYTES");
}

Findings check_locked_memory(const Machine& machine) {
  const rlim_t limit = machine.locked_memory.rlim_cur;
  const bool is_limited = limit != RLIM_INFINITY;
  return warn_if(is_limited && !machine.glob("sys/class/infiniband/*").empty(),
                 info((is_limited ? format_bytes(limit) : "unlimited") + " (ulimit -l)"),
                 "; InfiniBand here needs more for large messages (UCX, MPI, NCCL)",
                 "ulimit -l unlimited, set in /etc/security/limits.conf or the daemon that starts "
                 "jobs (docker run --ulimit memlock=-1)");
}

Findings check_open_files(const Machine& machine) {
  // Each rank needs sockets for collectives, messages and control, and shared memory.
  constexpr rlim_t kForEachRank = 4;
  constexpr rlim_t kForTheProgram = 128;
  const int world_size = machine.place.launch_info.world_size;
  const rlim_t n_needed = kForEachRank * static_cast<rlim_t>(world_size) + kForTheProgram;
  const auto count = [](rlim_t limit) {
    return limit == RLIM_INFINITY ? "unlimited" : std::to_string(limit);
  };
  const auto [soft, hard] = machine.open_files;
  return warn_if(soft < n_needed,
                 ok(count(soft) + " at a time (ulimit -n; at most " + count(hard) + ")"),
                 fmt::format("; a rank of {} may need {}", world_size, n_needed),
                 fmt::format("ulimit -n {}", n_needed));
}

}  // namespace unisono::cli::doctor
