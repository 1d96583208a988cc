#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::launch {

/// Settings from which the environment of a node's ranks is built.
struct JobLayout {
  std::string master_addr = {};
  std::uint16_t master_port = 0;
  int node_rank = 0;
  int n_nodes = 1;
  int first_rank = 0;  ///< Rank of this node's local rank 0.
  int local_world_size = 1;
  int world_size = 1;
  std::string run_id;
  std::string role = "default";
  std::string host = {};        ///< Name of this node for messages; empty if the job has one node.
  bool has_agent_store = true;  ///< The launcher serves the ranks' store, so rank 0 does not.
  int restart_count = 0;
  int max_restarts = 0;
  std::string secret;  ///< Secret of the job; empty if the ranks inherit one.
  /// OpenMP threads of a rank; std::nullopt keeps the user's setting.
  std::optional<int> omp_threads;
  /// Processors that each local rank is bound to; empty if no rank is bound.
  std::vector<std::vector<int>> cores = {};
  std::string binding = {};  ///< "not bound: ..." with a reason; empty: as the user asked.
  /// Sets TORCH_NCCL_ASYNC_ERROR_HANDLING; false if the user has set it.
  bool sets_nccl_errors = false;
  bool log_debug = false;  ///< Sets UNISONO_LOG=debug; false if the user has set a level.
  /// A rank that other ranks have waited for during this time counts as failed; 0: no limit.
  std::chrono::milliseconds stall_timeout{};
  /// Time after which ranks report a wait; 0: the user's setting or the default.
  std::chrono::milliseconds stall_interval{};
  /// The launcher itself runs in a rank of an outer launcher, which has set the wait file.
  bool has_outer_wait_file = false;
  std::string backend_alias = {};  ///< Mapping of backend names, "gloo=unisono"; empty: no mapping.
  std::string python_path = {};    ///< PYTHONPATH of the ranks; used with a mapping only.
  std::string rank_dir = {};  ///< Absolute path, with a folder for each rank; empty: no folders.
};

/// Returns the layout of a job of `n_workers` ranks on this node alone, with a random run ID. The
/// fields that depend on the rendezvous (address, port, secret) keep their defaults.
[[nodiscard]] JobLayout make_node_layout(int n_workers, const Environment& environment);

/// Returns the variables that `unisono run` sets for a rank, as "NAME=value", under the names that
/// torchrun uses.
[[nodiscard]] std::vector<std::string> worker_environment(const JobLayout& job, int local_rank);

/// Makes the folder that worker_environment() passes as UNISONO_RANK_DIR; has no effect if the job
/// has no such folders. Throws Error(kSystem).
void make_rank_folder(const JobLayout& job, int local_rank);

/// Returns the entries of `base` (ends with a null pointer) in order, without the names that
/// `overrides` also has, followed by `overrides`.
[[nodiscard]] std::vector<std::string> merge_environment(const char* const* base,
                                                         const std::vector<std::string>& overrides);

}  // namespace unisono::launch
