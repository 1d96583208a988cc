#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>

#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {
namespace {

using Json = nlohmann::ordered_json;

// Six digits are more than such a figure has.
double rounded(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

double to_us(double seconds) {
  return rounded(seconds * 1e6);
}

double to_gb(double bytes) {
  return rounded(bytes / 1e9);
}

Json describe(const Node& node) {
  return {{"name", node.name}, {"ranks", node.ranks}};
}

Json describe(const Row& row) {
  return {{"state", to_string(row.finding.state)},
          {"topic", row.finding.topic},
          {"text", row.finding.text},
          {"advice", row.finding.advice},
          {"ranks", row.ranks}};
}

Json describe(const Link& link) {
  return {{"ranks", {link.from, link.to}},
          {"latency_us", to_us(link.latency)},
          {"bandwidth_gb_per_s", to_gb(link.bandwidth)},
          {"bandwidth_back_gb_per_s", to_gb(link.bandwidth_back)},
          {"clock_difference_us", to_us(link.clock_difference)},
          {"clock_uncertainty_us", to_us(link.clock_uncertainty)}};
}

template <class List>
Json describe_all(const List& items) {
  Json list = Json::array();
  for (const auto& item : items) {
    list.push_back(describe(item));
  }
  return list;
}

}  // namespace

std::string to_json(const Report& report) {
  const Json json = {{"problems", report.count(State::kProblem)},
                     {"warnings", report.count(State::kWarning)},
                     {"nodes", describe_all(report.nodes)},
                     {"findings", describe_all(report.rows)},
                     {"pairs", describe_all(report.links)}};
  // What is no UTF-8, of a host's name or a file, becomes U+FFFD.
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace unisono::cli::doctor
