#pragma once

#include <chrono>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/config.h"
#include "unisono/base/dtype.h"
#include "unisono/cli/bench_operations.h"
#include "unisono/cli/bench_parse.h"

namespace unisono::cli::bench {

/// What `unisono bench` was asked for.
struct BenchOptions {
  std::span<const Operation> operations;
  int n_pretend_nodes = 1;
  std::vector<std::int64_t> sizes;
  DType dtype = DType::kFloat32;
  Memory memory = Memory::kPrivate;
  std::string backend = "unisono";
  Algorithm algorithm = Algorithm::kAuto;
  bool is_checked = false;
  bool is_verbose = false;  ///< Rank 0 logs what links cost, and why it chose each algorithm.
  std::string json_path;    ///< Empty: no file.
  std::chrono::duration<double> seconds{};
};

/// An environment as `base`, but that makes this rank one of a node of its block of ranks,
/// `n_nodes` blocks in all: ranks of different blocks reach each other by tcp.
[[nodiscard]] Environment pretend_nodes(const Environment& base, int n_nodes);

/// An environment as `base`, but that asks for debug lines.
[[nodiscard]] Environment with_debug_log(const Environment& base);

/// Measures as one rank of the job that the environment describes; rank 0 writes the table to
/// stdout and the lines of JSON. Returns the exit code: 1 on rank 0 when results were
/// wrong, kWrongUsage on all ranks when the group refused a call's arguments, which rank 0 then
/// says.
///
/// Throws Error.
[[nodiscard]] int run_in_job(const BenchOptions& options);

}  // namespace unisono::cli::bench
