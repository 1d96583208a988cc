#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace unisono::cli::bench {

/// Ranks that can be timed: ranks of Unisono, or of other libraries for comparison.
class TimedRanks {
 public:
  TimedRanks() = default;
  virtual ~TimedRanks() = default;
  TimedRanks(const TimedRanks&) = delete;
  TimedRanks& operator=(const TimedRanks&) = delete;
  TimedRanks(TimedRanks&&) = delete;
  TimedRanks& operator=(TimedRanks&&) = delete;

  /// Waits for all ranks. Not part of the measured time.
  virtual void barrier() = 0;

  /// Makes the measured call `n_calls` times in a row.
  virtual void repeat(int n_calls) = 0;

  /// Replaces each value, on every rank, by the maximum over all ranks.
  virtual void max_of_ranks(std::span<double> values) = 0;
};

/// Result of a measurement; times in seconds per call.
struct Summary {
  double median = 0;
  double min = 0;
  double p99 = 0;  ///< With fewer than 100 samples: the longest.
  int n_samples = 0;
};

/// Summarizes samples in seconds, in any order. Requires at least one sample.
[[nodiscard]] Summary summarize(std::vector<double> seconds);

/// Measures for about `budget`. Collective: every rank gets the same result.
///
/// A sample is a barrier and a call. If a call takes less than 40 us, a sample has as many calls as
/// 40 us hold, and its time is divided by their number. The time of the slowest rank counts. A
/// fifth of the budget goes to calls before the samples that do not count. There are 20 to 1000
/// samples.
[[nodiscard]] Summary sample(TimedRanks& ranks, std::chrono::duration<double> budget);

/// A row of the results.
struct Result {
  std::string op;
  int n_ranks = 0;
  int n_nodes = 1;
  std::int64_t n_bytes = 0;
  std::string dtype;
  std::string memory;
  std::string backend = {};        ///< Empty: unisono, or a measurement without a process group.
  std::string algorithm;           ///< Algorithm of the call; "auto" if there is only one.
  bool is_algorithm_auto = false;  ///< The algorithm was not requested.
  Summary time;
  /// Bus bandwidth / algorithm bandwidth: the share of n_bytes that each rank must move. Defined as
  /// in nccl-tests, so that figures for any number of ranks compare with the bandwidth of the
  /// hardware.
  double bus_factor = 1;
  /// Bytes sent and received per call by the rank that exchanges most with other nodes;
  /// std::nullopt on a single node.
  std::optional<std::int64_t> busiest_bytes = {};
  /// Number of wrong elements on all ranks; std::nullopt without a check.
  std::optional<std::int64_t> n_wrong = {};
};

/// Returns n_bytes / median time in units of 10^9 bytes/s; 0 if no data is moved.
[[nodiscard]] double algorithm_bandwidth(const Result& result);
/// Returns the algorithm bandwidth times the bus factor.
[[nodiscard]] double bus_bandwidth(const Result& result);

/// Returns the first line of the table, without a newline.
[[nodiscard]] std::string table_header();
/// Returns a row of the table, without a newline.
[[nodiscard]] std::string table_row(const Result& result);

/// Returns a line of JSON, without a newline. "wrong" is null without a check; "busiest_bytes" is
/// null on a single node and for backends other than unisono.
[[nodiscard]] std::string json_line(const Result& result);

/// Throws Error(kSystem) if write_json() cannot write to `path`. Does not change an existing file.
void check_json_path(const std::string& path);

/// Replaces the content of the file by `lines`. The text is written to a temporary file that is
/// then renamed, so that an existing file stays complete until the end. A pipe or device is written
/// directly.
///
/// Throws Error(kSystem) if writing fails.
void write_json(const std::string& path, const std::string& lines);

}  // namespace unisono::cli::bench
