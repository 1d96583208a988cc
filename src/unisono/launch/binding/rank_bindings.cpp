#include "unisono/launch/binding/rank_bindings.h"

#include <fmt/format.h>
#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/cores.h"
#include "unisono/base/error.h"
#include "unisono/launch/binding/report_bindings.h"
#include "unisono/launch/environment.h"
#include "unisono/launch/rank_ranges.h"
#include "unisono/rendezvous/roster/node_id.h"

namespace unisono::launch {
namespace {

std::string describe_threads(const JobLayout& job) {
  if (job.omp_threads) {
    return fmt::format("OMP_NUM_THREADS={} (set by the launcher)", *job.omp_threads);
  }
  return fmt::format("OMP_NUM_THREADS={} (from the environment)",
                     process_environment()("OMP_NUM_THREADS").value_or(""));
}

}  // namespace

std::vector<int> cores_for(const JobLayout& job, std::size_t local_rank) {
  return job.cores.empty() ? std::vector<int>() : job.cores[local_rank];
}

std::string describe_failed_binding(const JobLayout& job,
                                    std::size_t local_rank,
                                    int error_number) {
  return fmt::format(
      "rank {} can't be bound to {}: {}; were they taken from this job meanwhile? --bind-to none "
      "starts ranks wherever they may run",
      job.first_rank + static_cast<int>(local_rank),
      rank_ranges(cores_for(job, local_rank)),
      system_error("sched_setaffinity", error_number).what());
}

std::optional<std::string> RankBindings::note(const JobLayout& job,
                                              std::size_t local_rank,
                                              pid_t pid) {
  std::vector<int> cores = cores_of(pid);
  if (cores.empty()) {
    // One that has ended meanwhile had what it was started with.
    cores = job.cores.empty() ? cores_of(0) : cores_for(job, local_rank);
  }
  report_.ranks.push_back(
      {.rank = job.first_rank + static_cast<int>(local_rank), .cores = std::move(cores)});
  if (report_.ranks.size() != static_cast<std::size_t>(job.local_world_size)) {
    return std::nullopt;
  }
  report_.host = job.host.empty() ? rendezvous::host_name() : job.host;
  report_.threads = describe_threads(job);
  return report_bindings(report_);
}

}  // namespace unisono::launch
