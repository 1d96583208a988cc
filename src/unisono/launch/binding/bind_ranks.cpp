#include "unisono/launch/binding/bind_ranks.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <filesystem>
#include <string_view>
#include <utility>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/launch/report.h"
#include "unisono/net/unix_socket.h"
#include "unisono/rendezvous/this_node.h"

namespace unisono::launch {
namespace {

constexpr std::array kThreadBindings{
    "OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};
constexpr std::array kBindingPrograms{"numactl", "taskset", "hwloc-bind", "likwid-pin"};

// Returns the number of threads that the user asks for. The second and later numbers of "4,2" are
// for nested regions and do not count.
std::size_t threads_wanted(const Environment& environment) {
  const std::string text = environment("OMP_NUM_THREADS").value_or("");
  std::size_t wanted = 0;
  (void)std::from_chars(text.data(), text.data() + text.size(), wanted);
  return wanted;
}

void warn_of_shared_cores(const CoreTopology& topology,
                          std::span<const int> own,
                          int n_ranks,
                          const base::Logger& logger) {
  const int n_cores = static_cast<int>(topology.cores.size());
  if (n_cores < n_ranks) {
    logger.warning(fmt::format(
        "{} ranks are bound to {} core{}, {}, which they share: start at most {}, or give the "
        "launcher more cores",
        n_ranks,
        n_cores,
        n_cores == 1 ? "" : "s",
        rank_ranges(own),
        n_cores));
  }
}

}  // namespace

CoreMarks::CoreMarks(const CoreTopology& topology) {
  for (const Core& core : topology.cores) {
    try {
      names_.push_back(
          net::bind_unix_datagram(fmt::format("unisono-core-{}", core.processors.front())));
    } catch (const Error&) {
      first_used_ = first_used_ < 0 ? core.processors.front() : first_used_;
    }
  }
}

std::string reason_against_binding(const CoreTopology& topology,
                                   std::span<const std::vector<int>> shares,
                                   int n_usable,
                                   std::optional<int> n_threads,
                                   const std::string& program,
                                   const Environment& environment) {
  const std::size_t n_ranks = shares.size();
  const std::size_t n_cores =
      std::min(topology.cores.size(), static_cast<std::size_t>(std::max(n_usable, 1)));
  if (n_ranks > n_cores) {
    return fmt::format(
        "{} ranks are more than {} core{}", n_ranks, n_cores, n_cores == 1 ? "" : "s");
  }
  for (const char* name : kThreadBindings) {
    if (environment(name)) {
      return fmt::format("{} binds threads", name);
    }
  }
  const std::string file = std::filesystem::path(program).filename().string();
  if (std::ranges::find(kBindingPrograms, std::string_view(file)) != kBindingPrograms.end()) {
    return fmt::format("{} binds processes itself", file);
  }
  std::size_t n_unused = 0;
  for (const Core& core : topology.cores) {
    n_unused += core.processors.size();
  }
  std::size_t smallest = n_unused;
  for (const std::vector<int>& share : shares) {
    n_unused -= share.size();
    smallest = std::min(smallest, share.size());
  }
  if (n_unused > 0) {
    return fmt::format("equal shares for {} ranks would leave cores unused", n_ranks);
  }
  const std::size_t threads =
      n_threads ? static_cast<std::size_t>(*n_threads) : threads_wanted(environment);
  if (threads > smallest) {
    return fmt::format("OMP_NUM_THREADS={} is more than the {} processor{} of the smallest share",
                       threads,
                       smallest,
                       smallest == 1 ? "" : "s");
  }
  return "";
}

CoreMarks bind_ranks(std::optional<BindTo> bind_to,
                     const std::string& program,
                     const Environment& environment,
                     const base::Logger& logger,
                     JobLayout& job) {
  const int n_ranks = job.local_world_size;
  const std::vector<int> own = cores_of(0);
  if (bind_to == BindTo::kNone || own.empty()) {
    return CoreMarks({});
  }
  if (!bind_to && n_ranks == 1) {
    job.binding = "not bound: the only rank of this node may use all cores";
    return CoreMarks({});
  }
  const CoreTopology topology = read_topology(own);
  CoreShares shares = share_cores(topology, n_ranks, bind_to.value_or(BindTo::kCore));
  std::string reason = bind_to ? ""
                               : reason_against_binding(topology,
                                                        shares.processors,
                                                        available_cores(),
                                                        job.omp_threads,
                                                        program,
                                                        environment);
  // Launchers that start at this moment must not see marks of a job that is not bound.
  CoreMarks marks(reason.empty() ? topology : CoreTopology{});
  if (!bind_to) {
    if (marks.first_used() >= 0) {
      reason = fmt::format("another job is using core {}", marks.first_used());
    }
    if (!reason.empty()) {
      job.binding = fmt::format("not bound: {}", reason);
      return CoreMarks({});
    }
    job.binding = "bound by default; --bind-to none leaves them unbound";
  } else {
    warn_of_shared_cores(topology, own, n_ranks, logger);
    if (job.omp_threads) {
      // The control group may allow less CPU time than these cores have.
      job.omp_threads = std::max(1, std::min(shares.n_threads, available_cores() / n_ranks));
    }
  }
  job.cores = std::move(shares.processors);
  return marks;
}

namespace {

std::string describe_threads(const JobLayout& job) {
  if (job.omp_threads) {
    return fmt::format("OMP_NUM_THREADS={} (set by the launcher)", *job.omp_threads);
  }
  return fmt::format("OMP_NUM_THREADS={} (from the environment)",
                     process_environment()("OMP_NUM_THREADS").value_or(""));
}

std::string named(const char* name, const std::vector<int>& numbers) {
  return fmt::format("{}{} {}", name, numbers.size() == 1 ? "" : "s", rank_ranges(numbers));
}

}  // namespace

std::vector<int> cores_for(const JobLayout& job, std::size_t local_rank) {
  return job.cores.empty() ? std::vector<int>() : job.cores[local_rank];
}

std::string describe_failed_binding(const JobLayout& job,
                                    std::size_t local_rank,
                                    int error_number) {
  return fmt::format(
      "rank {} cannot be bound to {}: {}; perhaps this job lost the cores after the launcher had "
      "started; --bind-to none starts ranks on any core",
      job.first_rank + static_cast<int>(local_rank),
      named("core", cores_for(job, local_rank)),
      system_error("sched_setaffinity", error_number).what());
}

std::string to_text(const BindingReport& report) {
  std::string text;
  for (const RankBinding& rank : report.ranks) {
    const CoreTopology topology = read_topology(rank.cores);
    text += fmt::format("{}rank {} on {}: {}, {}, {}",
                        text.empty() ? "" : "\n",
                        rank.rank,
                        report.host,
                        named("core", rank.cores),
                        named("NUMA node", numa_nodes_of(topology, rank.cores)),
                        report.threads);
  }
  if (!report.cause.empty()) {
    text += fmt::format("\nranks on {} are {}", report.host, report.cause);
  }
  return text;
}

std::optional<std::string> RankBindings::note(const JobLayout& job,
                                              std::size_t local_rank,
                                              pid_t pid) {
  std::vector<int> cores = cores_of(pid);
  if (cores.empty()) {
    // The rank has ended already: report the mask that it was started with.
    cores = job.cores.empty() ? cores_of(0) : cores_for(job, local_rank);
  }
  report_.ranks.push_back(
      {.rank = job.first_rank + static_cast<int>(local_rank), .cores = std::move(cores)});
  if (report_.ranks.size() != static_cast<std::size_t>(job.local_world_size)) {
    return std::nullopt;
  }
  report_.host = job.host.empty() ? rendezvous::host_name() : job.host;
  report_.threads = describe_threads(job);
  report_.cause = job.binding;
  return to_text(report_);
}

}  // namespace unisono::launch
