#include "results.h"

#include <algorithm>
#include <cstddef>
#include <cstdio>
#include <fstream>
#include <iomanip>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bench {
namespace {

std::string fixed(double number, int n_digits) {
  std::ostringstream text;
  text << std::fixed << std::setprecision(n_digits) << number;
  return text.str();
}

double quantile(std::vector<double> seconds, double which) {
  std::ranges::sort(seconds);
  return seconds[static_cast<std::size_t>(which * static_cast<double>(seconds.size() - 1))];
}

std::string quantiles(const std::vector<double>& seconds) {
  if (seconds.empty()) {
    return "null";
  }
  return R"({"min": )" + fixed(quantile(seconds, 0), 9) + R"(, "median": )" +
         fixed(quantile(seconds, 0.5), 9) + R"(, "p99": )" + fixed(quantile(seconds, 0.99), 9) +
         "}";
}

std::string exposed_share(const Measurement& times) {
  if (times.synchronized.empty() || times.unsynchronized.empty()) {
    return "null";
  }
  const double with = quantile(times.synchronized, 0.5);
  return fixed((with - quantile(times.unsynchronized, 0.5)) / with, 6);
}

}  // namespace

std::string as_json(const Options& options, const Result& result) {
  const bool is_synchronized = !result.measured.synchronized.empty();
  const double median = quantile(
      is_synchronized ? result.measured.synchronized : result.measured.unsynchronized, 0.5);
  const std::vector<std::pair<std::string, std::string>> fields{
      {"model", '"' + options.model + '"'},
      {"ranks", std::to_string(result.n_ranks)},
      {"step_ms_median", fixed(1e3 * median, 6)},
      {"samples_per_s", fixed(result.samples_per_step / median, 3)},
      {"exposed_comm_share", exposed_share(result.measured)},
      {"parameters", std::to_string(result.measured.n_parameters)},
      {"pss_mib", fixed(result.measured.memory.pss_mib, 1)},
      {"pss_without_files_mib", fixed(result.measured.memory.without_files_mib, 1)},
      {"step", quantiles(result.measured.synchronized)},
      {"step_without_sync", quantiles(result.measured.unsynchronized)},
      {"plain_step", quantiles(result.measured.plain)}};
  std::string line;
  for (const auto& [name, value] : fields) {
    line.append(line.empty() ? "{\"" : ", \"").append(name).append("\": ").append(value);
  }
  return line + "}";
}

void write_result(const Options& options, const Result& result) {
  const std::string line = as_json(options, result) + "\n";
  if (options.json_file.empty()) {
    std::fputs(line.c_str(), stdout);
    return;
  }
  std::ofstream file(options.json_file);
  if (!(file << line) || !file.flush()) {
    throw std::runtime_error("can't write " + options.json_file);
  }
}

}  // namespace bench
