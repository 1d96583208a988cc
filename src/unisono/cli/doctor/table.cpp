#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {
namespace {

constexpr std::size_t kWidth = 100;
constexpr std::size_t kStateWidth = 9;
constexpr double kMicro = 1e6;
constexpr double kMilli = 1e3;
constexpr double kGiga = 1e9;

// Values of variables may be any bytes; a terminal takes some for orders.
std::string printable(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    clean += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return clean;
}

// Words put into lines of at most `width` characters, where they fit.
std::vector<std::string> wrap(std::string_view text, std::size_t width) {
  std::vector<std::string> lines(1);
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!lines.back().empty() && lines.back().size() + 1 + word.size() > width) {
      lines.emplace_back();
    }
    lines.back() += lines.back().empty() ? "" : " ";
    lines.back() += word;
  }
  return lines;
}

std::string count_of(int n, std::string_view what) {
  return n == 0 ? fmt::format("no {}", what) : fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

const Node& node_of(const Report& report, int rank) {
  return *std::find_if(report.nodes.begin(), report.nodes.end(), [&](const Node& node) {
    return std::binary_search(node.ranks.begin(), node.ranks.end(), rank);
  });
}

// The nodes whose ranks all are in the row; else the ranks. Nothing where there is but one node.
std::string place_of(const Report& report, const Row& row) {
  if (row.ranks.empty()) {
    return "";
  }
  const std::set<int> ranks(row.ranks.begin(), row.ranks.end());
  std::string names;
  std::size_t n_nodes = 0;
  std::size_t n_covered = 0;
  for (const Node& node : report.nodes) {
    if (std::all_of(
            node.ranks.begin(), node.ranks.end(), [&](int rank) { return ranks.contains(rank); })) {
      names += names.empty() ? "" : ", ";
      names += node.name;
      ++n_nodes;
      n_covered += node.ranks.size();
    }
  }
  if (n_covered != ranks.size()) {
    return fmt::format("rank{} {}: ", ranks.size() == 1 ? "" : "s", describe_ranks(row.ranks));
  }
  if (n_nodes == report.nodes.size()) {
    return n_nodes == 1 ? "" : "all nodes: ";
  }
  return fmt::format("node{} {}: ", n_nodes == 1 ? "" : "s", names);
}

std::string format_row(const Report& report, const Row& row, std::size_t topic_width) {
  const std::size_t indent = kStateWidth + topic_width;
  std::string text;
  std::string head = fmt::format(
      "{:<{}}{:<{}}", to_string(row.finding.state), kStateWidth, row.finding.topic, topic_width);
  for (const std::string& line :
       wrap(place_of(report, row) + printable(row.finding.text), kWidth - indent)) {
    text += head + line + "\n";
    head = std::string(indent, ' ');
  }
  if (!row.finding.advice.empty()) {
    constexpr std::string_view kArrow = "-> ";
    std::string mark(kArrow);
    for (const std::string& line :
         wrap(printable(row.finding.advice), kWidth - indent - kArrow.size())) {
      text += fmt::format("{:{}}{}{}\n", "", indent, mark, line);
      mark = std::string(kArrow.size(), ' ');
    }
  }
  return text;
}

std::string describe_nodes(const Report& report) {
  std::size_t n_ranks = 0;
  std::string nodes;
  for (const Node& node : report.nodes) {
    n_ranks += node.ranks.size();
    nodes += fmt::format("{}{} (rank{} {})",
                         nodes.empty() ? "" : ", ",
                         node.name,
                         node.ranks.size() == 1 ? "" : "s",
                         describe_ranks(node.ranks));
  }
  return n_ranks <= 1 ? report.nodes.front().name : nodes;
}

std::string format_links(const Report& report) {
  if (report.links.empty()) {
    return "";
  }
  const auto name = [&](const Link& link) {
    const Node& from = node_of(report, link.from);
    const Node& to = node_of(report, link.to);
    return &from == &to ? "within " + from.name : fmt::format("{} - {}", from.name, to.name);
  };
  std::size_t width = std::string_view("between").size();
  for (const Link& link : report.links) {
    width = std::max(width, name(link).size());
  }
  std::string text = fmt::format("\n{:<{}}{:>12}{:>12}{:>12}{:>28}\n",
                                 "between",
                                 width,
                                 "latency us",
                                 "GB/s there",
                                 "GB/s back",
                                 "clocks differ by, ms");
  for (const Link& link : report.links) {
    text += fmt::format(
        "{:<{}}{:>12.1f}{:>12.3f}{:>12.3f}{:>28}\n",
        name(link),
        width,
        link.latency * kMicro,
        link.bandwidth / kGiga,
        link.bandwidth_back / kGiga,
        fmt::format(
            "{:.3f} +- {:.3f}", link.clock_difference * kMilli, link.clock_uncertainty * kMilli));
  }
  return text;
}

}  // namespace

std::string to_table(const Report& report, bool shows_all) {
  std::string text;
  const std::string title = fmt::format("unisono doctor on {}: {}, {}",
                                        describe_nodes(report),
                                        count_of(report.count(State::kProblem), "problem"),
                                        count_of(report.count(State::kWarning), "warning"));
  for (const std::string& line : wrap(title, kWidth)) {
    text += line + "\n";
  }
  std::vector<const Row*> shown;
  std::size_t topic_width = 0;
  for (const Row& row : report.rows) {
    if (shows_all || row.finding.state <= State::kWarning) {
      shown.push_back(&row);
      topic_width = std::max(topic_width, row.finding.topic.size() + 2);
    }
  }
  text += shown.empty() ? "" : "\n";
  for (const Row* const row : shown) {
    text += format_row(report, *row, topic_width);
  }
  return text + format_links(report);
}

}  // namespace unisono::cli::doctor
