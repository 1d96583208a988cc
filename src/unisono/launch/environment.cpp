#include "unisono/launch/environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <filesystem>
#include <set>
#include <string_view>
#include <system_error>

#include "unisono/base/error.h"
#include "unisono/base/process.h"
#include "unisono/base/text.h"
#include "unisono/base/wait_record.h"

namespace unisono::launch {
namespace {

std::string_view name_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

std::string rank_folder(const JobLayout& job, int local_rank) {
  return fmt::format("{}/rank-{}", job.rank_dir, job.first_rank + local_rank);
}

}  // namespace

JobLayout make_node_layout(int n_workers, const Environment& environment) {
  constexpr std::size_t kRunIdBytes = 8;
  JobLayout job;
  job.local_world_size = n_workers;
  job.world_size = n_workers;
  job.run_id = random_hex(kRunIdBytes);
  job.has_outer_wait_file = environment(kWaitFileVariable).has_value();
  job.sets_nccl_errors = !environment("TORCH_NCCL_ASYNC_ERROR_HANDLING");
  if (!environment("OMP_NUM_THREADS")) {
    job.omp_threads = std::max(1, available_cores() / n_workers);
  }
  return job;
}

std::vector<std::string> worker_environment(const JobLayout& job, int local_rank) {
  const int rank = job.first_rank + local_rank;
  std::vector<std::string> variables{
      fmt::format("MASTER_ADDR={}", job.master_addr),
      fmt::format("MASTER_PORT={}", job.master_port),
      fmt::format("RANK={}", rank),
      fmt::format("WORLD_SIZE={}", job.world_size),
      fmt::format("LOCAL_RANK={}", local_rank),
      fmt::format("LOCAL_WORLD_SIZE={}", job.local_world_size),
      fmt::format("GROUP_RANK={}", job.node_rank),
      fmt::format("GROUP_WORLD_SIZE={}", job.n_nodes),
      fmt::format("ROLE_RANK={}", rank),
      fmt::format("ROLE_NAME={}", job.role),
      fmt::format("ROLE_WORLD_SIZE={}", job.world_size),
      fmt::format("TORCHELASTIC_RUN_ID={}", job.run_id),
      fmt::format("TORCHELASTIC_RESTART_COUNT={}", job.restart_count),
      fmt::format("TORCHELASTIC_MAX_RESTARTS={}", job.max_restarts),
      fmt::format("TORCHELASTIC_USE_AGENT_STORE={}", job.has_agent_store ? "True" : "False"),
  };
  if (!job.secret.empty()) {
    variables.push_back("UNISONO_SECRET=" + job.secret);
  }
  if (job.omp_threads) {
    variables.push_back(fmt::format("OMP_NUM_THREADS={}", *job.omp_threads));
  }
  if (job.sets_nccl_errors) {
    variables.emplace_back("TORCH_NCCL_ASYNC_ERROR_HANDLING=1");
  }
  if (job.log_debug) {
    variables.emplace_back("UNISONO_LOG=debug");
  }
  if (job.stall_interval > std::chrono::milliseconds::zero()) {
    variables.push_back(fmt::format("UNISONO_STALL_SECONDS={}",
                                    std::chrono::duration<double>(job.stall_interval).count()));
  }
  if (job.has_outer_wait_file && job.stall_timeout == std::chrono::milliseconds::zero()) {
    variables.push_back(fmt::format("{}=", kWaitFileVariable));
  }
  if (!job.backend_alias.empty()) {
    variables.push_back("UNISONO_BACKEND_ALIAS=" + job.backend_alias);
    variables.push_back("PYTHONPATH=" + job.python_path);
  }
  if (!job.rank_dir.empty()) {
    variables.push_back("UNISONO_RANK_DIR=" + rank_folder(job, local_rank));
  }
  return variables;
}

void make_rank_folder(const JobLayout& job, int local_rank) {
  if (job.rank_dir.empty()) {
    return;
  }
  const std::string folder = rank_folder(job, local_rank);
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) {
    throw system_error(fmt::format("cannot create the folder {} of rank {} (--rank-dir)",
                                   folder,
                                   job.first_rank + local_rank),
                       error.value());
  }
}

std::vector<std::string> merge_environment(const char* const* base,
                                           const std::vector<std::string>& overrides) {
  std::set<std::string_view> replaced;
  for (const std::string& entry : overrides) {
    replaced.insert(name_of(entry));
  }
  std::vector<std::string> merged;
  for (const char* const* entry = base; *entry != nullptr; ++entry) {
    if (!replaced.contains(name_of(*entry))) {
      merged.emplace_back(*entry);
    }
  }
  merged.insert(merged.end(), overrides.begin(), overrides.end());
  return merged;
}

}  // namespace unisono::launch
