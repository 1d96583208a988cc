#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "unisono/cli/bench_sampling.h"

namespace unisono::cli::bench {

/// One line of the results.
struct Result {
  std::string op;
  int n_ranks = 0;
  int n_nodes = 1;
  std::int64_t n_bytes = 0;
  std::string dtype;
  std::string memory;
  std::string backend = {};        ///< Empty: unisono, or no process group.
  std::string algorithm;           ///< As it was carried out; "auto" where there is but one way.
  bool is_algorithm_auto = false;  ///< Nobody asked for it.
  Summary time;
  /// Bus bandwidth / algorithm bandwidth: the share of n_bytes that each rank must move, as
  /// nccl-tests counts it, so that figures of any number of ranks compare to the hardware's.
  double bus_factor = 1;
  /// What the rank that exchanges most with other nodes sends and receives in a call; nothing on
  /// one node.
  std::optional<std::int64_t> busiest_bytes = {};
  /// Elements that differ from what they must be, on all ranks; nothing if that was not checked.
  std::optional<std::int64_t> n_wrong = {};
};

/// n_bytes by the median time, in units of 10^9 bytes/s; 0 where nothing is moved.
[[nodiscard]] double algorithm_bandwidth(const Result& result);
[[nodiscard]] double bus_bandwidth(const Result& result);

/// The table's first line, without a newline.
[[nodiscard]] std::string table_header();
[[nodiscard]] std::string table_row(const Result& result);

/// One line of JSON, without a newline. "wrong" is null if nothing was checked,
/// "busiest_bytes" where there is one node or another backend than unisono.
[[nodiscard]] std::string json_line(const Result& result);

}  // namespace unisono::cli::bench
