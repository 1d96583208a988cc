#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"

namespace unisono::rendezvous {

/// Returns the device of a rank by local rank: cuda:local_rank, starting again at cuda:0 if there
/// are more ranks than GPUs; cpu if there are no GPUs.
[[nodiscard]] Device device_of_local_rank(int local_rank, int n_gpus);

/// Returns this process's local rank, from LOCAL_RANK or else from the launcher's variable. Returns
/// std::nullopt if neither is set.
///
/// Throws Error(kInvalidArgument), with variable and value, if the value is invalid.
[[nodiscard]] std::optional<int> own_local_rank(const Environment& environment);

/// Describes which ranks of a node share GPUs, for a warning: "local ranks 0 and 2 both use cuda:0,
/// ...". Returns "" if no ranks do.
[[nodiscard]] std::string describe_shared_gpus(int n_local_ranks, int n_gpus);

/// Describes which ranks share GPUs where that is an error, as for NCCL: "ranks 0 and 1 are both on
/// cuda:0: ...". Returns "" if no ranks do. `devices` belong to the ranks of a node, from
/// `first_rank` on.
[[nodiscard]] std::string explain_same_gpu(const std::vector<Device>& devices, int first_rank);

/// Returns "cpu" or "cuda:3".
[[nodiscard]] std::string describe(const Device& device);

/// A task of Slurm and the step, with the names of Python's idr_torch.
struct SlurmJob {
  std::vector<std::string> hostnames;  ///< Nodes of the step, beginning with the first task's node.
  int size = 1;                        ///< Number of tasks.
  int rank = 0;
  int local_rank = 0;  ///< Rank among the tasks of the node.
  /// Cores requested for each task, or else this node's cores divided by the number of tasks. A
  /// task may start that many threads and workers.
  int cpus_per_task = 1;
  /// Number requested, or else this node's number, or else the tasks divided by the nodes, rounded
  /// up.
  int ntasks_per_node = 1;
  /// Tasks of each node in the order of `hostnames`. Empty if Slurm does not report the tasks.
  std::vector<int> tasks_of_nodes;
  std::vector<int> gpu_ids;  ///< GPUs on this node. Empty if the job has no GPUs.
  /// The meeting point of the ranks: MASTER_ADDR and MASTER_PORT if set, otherwise the first node
  /// and a port derived from the numbers of job and step.
  std::string master_addr;
  std::uint16_t master_port = 0;
};

/// Reads the variables of an srun task, or of a batch script. A batch script has no step: the nodes
/// are then the job's.
///
/// Throws Error(kInvalidArgument) with a single message that names all missing and invalid
/// variables.
[[nodiscard]] SlurmJob slurm_job(const Environment& environment);

}  // namespace unisono::rendezvous
