#include "unisono/cli/bench_report.h"

#include <fmt/format.h>

#include <cstdint>
#include <optional>
#include <string>

namespace unisono::cli::bench {
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
  // The texts are names of ours: nothing in them needs a backslash.
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

}  // namespace unisono::cli::bench
