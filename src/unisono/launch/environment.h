#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/config.h"

namespace unisono::launch {

/// What the environment of a node's ranks is made of.
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
  std::string host = {};        ///< This node, for messages; empty where it is the only one.
  bool has_agent_store = true;  ///< The launcher serves the ranks' store, so rank 0 does not.
  int restart_count = 0;
  int max_restarts = 0;
  std::string secret;              ///< Empty: the ranks already have one.
  std::optional<int> omp_threads;  ///< Nothing: the user's own setting stays.
  /// Of each local rank: the processors that it is bound to. Empty: none is bound.
  std::vector<std::vector<int>> cores = {};
  bool sets_nccl_errors = false;  ///< Not where the user has.
  bool log_debug = false;         ///< Not where the user set a level.
  /// A rank that others have waited for so long counts as failed; 0: none does.
  std::chrono::milliseconds stall_timeout{};
  /// When ranks report waits; 0: as the user has it, or by default.
  std::chrono::milliseconds stall_interval{};
  bool has_outer_wait_file = false;  ///< Of the launcher whose rank has started this one.
  std::string backend_alias = {};    ///< Empty: backends' names are what they are.
  std::string python_path = {};      ///< Used with an alias.
  std::string rank_dir = {};         ///< Absolute, with a folder for each rank; empty: none.
};

/// `n_workers` ranks of a job on this node alone, with a random name: what does not depend on where
/// they meet.
[[nodiscard]] JobLayout make_node_layout(int n_workers, const Environment& environment);

/// The variables that `unisono run` sets for a rank, as "NAME=value", under the names that torchrun
/// gives them.
[[nodiscard]] std::vector<std::string> worker_environment(const JobLayout& job, int local_rank);

/// Makes the folder that worker_environment() names as UNISONO_RANK_DIR; does nothing where the job
/// has none. Throws Error(kSystem).
void make_rank_folder(const JobLayout& job, int local_rank);

/// The entries of `base` (ends with a null pointer) in their order, without those that `overrides`
/// has too, then `overrides`.
[[nodiscard]] std::vector<std::string> merge_environment(const char* const* base,
                                                         const std::vector<std::string>& overrides);

}  // namespace unisono::launch
