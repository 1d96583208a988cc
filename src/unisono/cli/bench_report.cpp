#include "unisono/cli/bench_report.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "unisono/base/error.h"

namespace unisono::cli::bench {
namespace {

constexpr double kShortestSample = 40e-6;
constexpr double kMaxCallsInSample = 10000;
constexpr double kMinSamples = 20;
constexpr double kMaxSamples = 1000;
constexpr double kWarmUpShare = 0.2;

double time_calls(TimedRanks& ranks, int n_calls) {
  ranks.barrier();
  const auto start = std::chrono::steady_clock::now();
  ranks.repeat(n_calls);
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Seconds per call.
struct Estimate {
  double shortest = 0;
  double mean = 0;
};

// Calls the operation in growing blocks until `seconds` have passed. All ranks make the same number
// of calls, because all use the time of the slowest rank.
Estimate warm_up(TimedRanks& ranks, double seconds) {
  constexpr double kLeast = 1e-9;
  constexpr int kMaxCalls = 1 << 20;
  Estimate estimate{.shortest = std::numeric_limits<double>::max(), .mean = 0};
  double total = 0;
  double n_total = 0;
  for (int n_calls = 1; n_calls <= 2 || total < seconds;
       n_calls = std::min(2 * n_calls, kMaxCalls)) {
    double block = time_calls(ranks, n_calls);
    ranks.max_of_ranks(std::span(&block, 1));
    total += block;
    n_total += n_calls;
    estimate.shortest = std::max(std::min(estimate.shortest, block / n_calls), kLeast);
  }
  estimate.mean = total / n_total;
  return estimate;
}

}  // namespace

Summary summarize(std::vector<double> seconds) {
  std::ranges::sort(seconds);
  // Returns the smallest sample with at least a share `quantile` of all samples at or below it.
  const auto at = [&seconds](double quantile) {
    const double position = std::ceil(quantile * static_cast<double>(seconds.size()));
    return seconds[static_cast<std::size_t>(std::max(position, 1.0)) - 1];
  };
  return {.median = at(0.5),
          .min = seconds.front(),
          .p99 = at(0.99),
          .n_samples = static_cast<int>(seconds.size())};
}

Summary sample(TimedRanks& ranks, std::chrono::duration<double> budget) {
  const Estimate call = warm_up(ranks, kWarmUpShare * budget.count());
  const double n_calls =
      std::clamp(std::ceil(kShortestSample / call.shortest), 1.0, kMaxCallsInSample);
  const double n_samples =
      std::clamp(budget.count() / (n_calls * call.mean), kMinSamples, kMaxSamples);
  std::vector<double> seconds(static_cast<std::size_t>(n_samples));
  for (double& time : seconds) {
    time = time_calls(ranks, static_cast<int>(n_calls)) / n_calls;
  }
  ranks.max_of_ranks(seconds);
  return summarize(std::move(seconds));
}

namespace {

constexpr double kMicroseconds = 1e6;
constexpr double kGiga = 1e9;

std::string number_or(const std::optional<std::int64_t>& number, const char* otherwise) {
  return number ? fmt::format("{}", *number) : otherwise;
}

}  // namespace

double algorithm_bandwidth(const Result& result) {
  return result.time.median > 0 ? static_cast<double>(result.n_bytes) / result.time.median / kGiga
                                : 0;
}

double bus_bandwidth(const Result& result) {
  return algorithm_bandwidth(result) * result.bus_factor;
}

std::string table_header() {
  return fmt::format("{:<15}{:>12}{:>9}{:>13}{:>13}{:>13}{:>12}{:>12}{:>24}{:>9}",
                     "# operation",
                     "bytes",
                     "samples",
                     "median us",
                     "min us",
                     "p99 us",
                     "algbw GB/s",
                     "busbw GB/s",
                     "algorithm",
                     "wrong");
}

std::string table_row(const Result& result) {
  return fmt::format("{:<15}{:>12}{:>9}{:>13.3f}{:>13.3f}{:>13.3f}{:>12.3f}{:>12.3f}{:>24}{:>9}",
                     result.op,
                     result.n_bytes,
                     result.time.n_samples,
                     result.time.median * kMicroseconds,
                     result.time.min * kMicroseconds,
                     result.time.p99 * kMicroseconds,
                     algorithm_bandwidth(result),
                     bus_bandwidth(result),
                     (result.is_algorithm_auto ? "auto: " : "") + result.algorithm,
                     number_or(result.n_wrong, "-"));
}

std::string json_line(const Result& result) {
  // The texts are names of this program and need no escapes.
  const std::string backend =
      result.backend.empty() ? "" : fmt::format(R"("backend":"{}",)", result.backend);
  return fmt::format(R"({{"op":"{}","ranks":{},"nodes":{},"bytes":{},"dtype":"{}","memory":"{}",{})"
                     R"("algorithm":"{}","median_us":{:.6g},"min_us":{:.6g},"p99_us":{:.6g},)"
                     R"("algbw_gbps":{:.6g},"busbw_gbps":{:.6g},"busiest_bytes":{},"wrong":{}}})",
                     result.op,
                     result.n_ranks,
                     result.n_nodes,
                     result.n_bytes,
                     result.dtype,
                     result.memory,
                     backend,
                     result.algorithm,
                     result.time.median * kMicroseconds,
                     result.time.min * kMicroseconds,
                     result.time.p99 * kMicroseconds,
                     algorithm_bandwidth(result),
                     bus_bandwidth(result),
                     number_or(result.busiest_bytes, "null"),
                     number_or(result.n_wrong, "null"));
}

namespace {

namespace fs = std::filesystem;

Error cannot_write(const std::string& path, int error_number) {
  return system_error("bench: cannot write " + path, error_number);
}

// Returns true for a pipe or a device, which rename(2) must not replace.
bool is_special(const std::string& path) {
  std::error_code ignored;
  const fs::file_status status = fs::status(path, ignored);
  return fs::exists(status) && !fs::is_regular_file(status);
}

// Returns the target of a link, existing or not, so that the link itself stays.
fs::path target_of(const std::string& path) {
  std::error_code error;
  fs::path target = fs::canonical(path, error);
  if (!error) {
    return target;
  }
  const fs::path next = fs::read_symlink(path, error);
  return error ? fs::path(path) : fs::path(path).parent_path() / next;
}

// Gives the new file the permissions of the file that it replaces.
void copy_permissions(const fs::path& from, const std::string& to) {
  std::error_code ignored;
  if (const fs::file_status status = fs::status(from, ignored); fs::exists(status)) {
    fs::permissions(to, status.permissions(), ignored);
  }
}

// Returns a name in the folder of `target` that no other process uses.
std::string temporary_name(const fs::path& target) {
  return fmt::format("{}.part-{}", target.string(), ::getpid());
}

// Writes `lines` to `file`, which is `path` itself or a temporary file for it. An error names
// `path`.
void write(const std::string& path, const std::string& file, const std::string& lines) {
  errno = 0;
  std::ofstream out(file);
  out << lines;
  out.close();
  if (!out) {
    const int error_number = errno;
    if (file != path) {
      (void)::unlink(file.c_str());
    }
    throw cannot_write(path, error_number);
  }
}

}  // namespace

void check_json_path(const std::string& path) {
  if (::access(path.c_str(), F_OK) == 0 && ::access(path.c_str(), W_OK) != 0) {
    throw cannot_write(path, errno);
  }
  std::error_code ignored;
  if (fs::is_directory(path, ignored)) {
    throw cannot_write(path, EISDIR);
  }
  if (is_special(path)) {
    return;
  }
  const std::string temporary = temporary_name(target_of(path));
  write(path, temporary, "");
  (void)::unlink(temporary.c_str());
}

void write_json(const std::string& path, const std::string& lines) {
  if (is_special(path)) {
    write(path, path, lines);
    return;
  }
  const fs::path target = target_of(path);
  const std::string temporary = temporary_name(target);
  write(path, temporary, "");
  copy_permissions(target, temporary);
  write(path, temporary, lines);
  if (std::rename(temporary.c_str(), target.c_str()) != 0) {
    const int error_number = errno;
    (void)::unlink(temporary.c_str());
    throw cannot_write(path, error_number);
  }
}

}  // namespace unisono::cli::bench
