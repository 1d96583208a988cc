#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/config.h"
#include "unisono/base/reduction.h"
#include "unisono/cli/bench_operations.h"
#include "unisono/cli/bench_parse.h"

namespace unisono::cli::bench {

/// Options of `unisono bench`.
struct BenchOptions {
  std::span<const BenchOperation> operations;
  int n_pretend_nodes = 1;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kFloat32;
  Memory memory = Memory::kPrivate;
  std::string backend = "unisono";
  Algorithm algorithm = Algorithm::kAuto;
  bool is_checked = false;
  bool is_verbose = false;  ///< Rank 0 logs the cost of links and the reason for each algorithm.
  std::string json_path;    ///< Empty: no file.
  std::chrono::duration<double> seconds{};
};

/// Returns an environment like `base` in which the ranks are divided into `n_nodes` blocks that act
/// as nodes: ranks of different blocks use tcp.
[[nodiscard]] Environment pretend_nodes(const Environment& base, int n_nodes);

/// Returns an environment like `base` with the log level debug.
[[nodiscard]] Environment with_debug_log(const Environment& base);

/// Measures as a rank of the job that the environment describes; rank 0 writes the table to stdout
/// and the JSON file. Returns the exit code: 1 on rank 0 if results were wrong, kWrongUsage on all
/// ranks if the group refused the arguments of a call (rank 0 prints the error).
///
/// Throws Error.
[[nodiscard]] int run_in_job(const BenchOptions& options);

}  // namespace unisono::cli::bench
