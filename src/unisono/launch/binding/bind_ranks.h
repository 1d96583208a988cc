#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/fd.h"
#include "unisono/base/log.h"
#include "unisono/launch/binding/share_cores.h"
#include "unisono/launch/environment.h"

namespace unisono::launch {

/// Marks cores of this machine as used by a job, for the launchers of other jobs. Each mark is an
/// abstract socket name, so the kernel removes the marks when the launcher ends, however that
/// happens. All users in the same network namespace see the marks.
class CoreMarks {
 public:
  /// Marks the cores of `topology` that are still free. Never throws: a core that cannot be marked
  /// counts as used.
  explicit CoreMarks(const CoreTopology& topology);

  /// Returns the first processor of a core that another job has marked, or -1 if all marks belong
  /// to this job.
  [[nodiscard]] int first_used() const { return first_used_; }

 private:
  std::vector<Fd> names_;
  int first_used_ = -1;
};

/// Returns the reason for which ranks are not bound by default, or an empty text if they are to be
/// bound. `n_usable` is the number of processors that the control group lets this process use at
/// the same time. `n_threads` is the number of OpenMP threads that the launcher sets for each rank;
/// std::nullopt if the user has set the number. `program` is the file that ranks execute.
///
/// Ranks are bound by default only if
///
/// - each rank gets a whole core, and each core has a rank,
/// - no rank has more OpenMP threads than the smallest share has processors,
/// - the user does not bind threads or processes by other means (OpenMP variables, numactl and
///   similar programs).
[[nodiscard]] std::string reason_against_binding(const CoreTopology& topology,
                                                 std::span<const std::vector<int>> shares,
                                                 int n_usable,
                                                 std::optional<int> n_threads,
                                                 const std::string& program,
                                                 const Environment& environment);

/// Chooses the cores of each rank of this node, from the cores that this process may use, and
/// writes them into `job`.
///
/// - Without a value in `bind_to`, several ranks get cores of their own if reason_against_binding()
///   returns no reason and no other job of this machine has marked one of the cores. A single rank
///   may use all cores.
/// - With kNone, no rank is bound.
/// - With any other value, ranks are bound as asked. The number of OpenMP threads follows the size
///   of the shares, unless the user has set a number. A warning reports cores that ranks share.
///
/// Without `bind_to` the number of threads does not change, because results must not depend on
/// other jobs. Returns the marks of this job's cores, which the launcher keeps until the job has
/// ended. Reading the topology from the kernel's files takes about 50 us per processor; a single
/// rank does not need the topology.
[[nodiscard]] CoreMarks bind_ranks(std::optional<BindTo> bind_to,
                                   const std::string& program,
                                   const Environment& environment,
                                   const base::Logger& logger,
                                   JobLayout& job);

/// Returns the processors that `local_rank` is to be bound to; empty if the rank is not to be
/// bound.
[[nodiscard]] std::vector<int> cores_for(const JobLayout& job, std::size_t local_rank);

/// Returns the error message for a rank that could not be started because the kernel refused to
/// bind it.
[[nodiscard]] std::string describe_failed_binding(const JobLayout& job,
                                                  std::size_t local_rank,
                                                  int error_number);

/// The processors on which a rank runs.
struct RankBinding {
  int rank = 0;
  std::vector<int> cores;  ///< Processors by the kernel's numbers, sorted.
};

/// The cores on which the ranks of a node run.
struct BindingReport {
  std::string host;
  std::vector<RankBinding> ranks;
  std::string threads;  ///< "OMP_NUM_THREADS=4 (set by the launcher)".
  std::string cause;    ///< "bound by default"; empty: the user asked for this binding.
};

/// Returns a line for each rank with host, cores, NUMA node and threads, and a last line with the
/// cause.
[[nodiscard]] std::string to_text(const BindingReport& report);

/// Collects the bindings of a node's ranks while they start.
class RankBindings {
 public:
  /// Reads the affinity mask of process `pid`. Returns the report after the last rank.
  [[nodiscard]] std::optional<std::string> note(const JobLayout& job,
                                                std::size_t local_rank,
                                                pid_t pid);

 private:
  BindingReport report_;
};

}  // namespace unisono::launch
