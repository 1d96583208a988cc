#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// A task of Slurm: its step and its place in it, under the names of Python's idr_torch.
struct SlurmJob {
  std::vector<std::string> hostnames;  ///< The step's nodes, the first task's first.
  int size = 1;                        ///< Number of tasks.
  int rank = 0;
  int local_rank = 0;  ///< Among the tasks of the node.
  /// Cores that were asked for for each task; else this node's, shared out among its tasks. As many
  /// threads and workers a task may start.
  int cpus_per_task = 1;
  /// As many as were asked for; else this node's; else the tasks shared out among the nodes,
  /// rounded up.
  int ntasks_per_node = 1;
  /// Of each node in the order of `hostnames`; empty where Slurm does not tell.
  std::vector<int> tasks_of_nodes;
  std::vector<int> gpu_ids;  ///< On this node; empty where the job has none.
  /// Where the ranks meet: MASTER_ADDR and MASTER_PORT if they are set, else the first node and the
  /// port that follows from the numbers of job and step.
  std::string master_addr;
  std::uint16_t master_port = 0;
};

/// Reads the variables of a task of srun, or those of a batch script, which has no step: then the
/// nodes are the job's.
///
/// Throws Error(kInvalidArgument) with one message that names all that is missing or wrong.
[[nodiscard]] SlurmJob slurm_job(const Environment& environment);

}  // namespace unisono::rendezvous
