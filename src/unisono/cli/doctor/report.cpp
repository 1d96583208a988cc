#include "unisono/cli/doctor/report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "unisono/launch/report.h"

namespace unisono::cli::doctor {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t kWidth = 100;
constexpr std::size_t kStateWidth = 9;
constexpr double kMicro = 1e6;
constexpr double kMilli = 1e3;
constexpr double kGiga = 1e9;

// Escapes control characters: variables may contain any bytes, and a terminal executes some of
// them.
std::string printable(std::string_view text) {
  std::string clean;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    clean += byte < 0x20 || byte == 0x7F ? fmt::format("\\x{:02x}", byte) : std::string(1, c);
  }
  return clean;
}

// Breaks `text` between words into lines of at most `width` characters, if possible. The first line
// begins with `head`, the following lines with equal indentation.
std::string wrap(std::string head, std::string_view text, std::size_t width) {
  std::string lines;
  std::string line;
  const auto end_line = [&] {
    lines += head + line + "\n";
    head.assign(head.size(), ' ');
    line.clear();
  };
  while (!text.empty()) {
    const std::string_view word = text.substr(0, text.find(' '));
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    if (!line.empty() && head.size() + line.size() + 1 + word.size() > width) {
      end_line();
    }
    line += line.empty() ? "" : " ";
    line += word;
  }
  end_line();
  return lines;
}

// Names the nodes of the row if the row has all their ranks, otherwise the ranks. Empty for a
// single node.
std::string describe_place(const std::vector<Node>& nodes, const Row& row) {
  if (row.ranks.empty()) {
    return "";
  }
  const std::set<int> ranks(row.ranks.begin(), row.ranks.end());
  std::vector<std::string> names;
  std::size_t n_covered = 0;
  for (const Node& node : nodes) {
    if (std::ranges::all_of(node.ranks, [&](int rank) { return ranks.contains(rank); })) {
      names.push_back(node.name);
      n_covered += node.ranks.size();
    }
  }
  if (n_covered != ranks.size()) {
    return fmt::format(
        "rank{} {}: ", ranks.size() == 1 ? "" : "s", launch::rank_ranges(row.ranks, ", "));
  }
  if (names.size() == nodes.size()) {
    return names.size() == 1 ? "" : "all nodes: ";
  }
  return fmt::format("node{} {}: ", names.size() == 1 ? "" : "s", fmt::join(names, ", "));
}

std::string format_row(const std::vector<Node>& nodes, const Row& row, std::size_t topic_width) {
  const Finding& finding = row.finding;
  const std::string head = fmt::format(
      "{:<{}}{:<{}}", to_string(finding.state), kStateWidth, finding.topic, topic_width);
  const std::string advice = std::string(head.size(), ' ') + "-> ";
  return wrap(head, describe_place(nodes, row) + printable(finding.text), kWidth) +
         (finding.advice.empty() ? "" : wrap(advice, printable(finding.advice), kWidth));
}

std::string describe_nodes(const std::vector<Node>& nodes) {
  std::size_t n_ranks = 0;
  std::vector<std::string> texts;
  for (const Node& node : nodes) {
    n_ranks += node.ranks.size();
    texts.push_back(fmt::format("{} (rank{} {})",
                                node.name,
                                node.ranks.size() == 1 ? "" : "s",
                                launch::rank_ranges(node.ranks, ", ")));
  }
  return n_ranks <= 1 ? nodes.front().name : join(texts, ", ");
}

std::string format_links(const Report& report) {
  const auto name = [&](const MeasuredLink& link) {
    const Node& from = node_of(report.nodes, link.from);
    const Node& to = node_of(report.nodes, link.to);
    return &from == &to ? "within " + from.name : fmt::format("{} - {}", from.name, to.name);
  };
  std::size_t width = std::string_view("between").size();
  for (const MeasuredLink& link : report.links) {
    width = std::max(width, name(link).size());
  }
  constexpr const char* kHead = "\n{:<{}}{:>12}{:>12}{:>12}{:>28}\n";
  std::string text = fmt::format(
      kHead, "between", width, "latency us", "GB/s there", "GB/s back", "clocks differ by, ms");
  for (const MeasuredLink& link : report.links) {
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
  return report.links.empty() ? "" : text;
}

// Measurements are precise to fewer than six digits.
double rounded(double value) {
  return std::stod(fmt::format("{:.6g}", value));
}

Json to_json_value(const Node& node) {
  return {{"name", node.name}, {"ranks", node.ranks}};
}

Json to_json_value(const Row& row) {
  return {{"state", to_string(row.finding.state)},
          {"topic", row.finding.topic},
          {"text", row.finding.text},
          {"advice", row.finding.advice},
          {"ranks", row.ranks}};
}

Json to_json_value(const MeasuredLink& link) {
  return {{"ranks", {link.from, link.to}},
          {"latency_us", rounded(link.latency * kMicro)},
          {"bandwidth_gb_per_s", rounded(link.bandwidth / kGiga)},
          {"bandwidth_back_gb_per_s", rounded(link.bandwidth_back / kGiga)},
          {"clock_difference_us", rounded(link.clock_difference * kMicro)},
          {"clock_uncertainty_us", rounded(link.clock_uncertainty * kMicro)}};
}

template <class T>
Json to_json_list(const std::vector<T>& items) {
  Json list = Json::array();
  for (const T& item : items) {
    list.push_back(to_json_value(item));
  }
  return list;
}

}  // namespace

int Report::count(State state) const {
  return static_cast<int>(
      std::ranges::count_if(rows, [&](const Row& row) { return row.finding.state == state; }));
}

void add_row(std::vector<Row>& rows, const Finding& finding, const std::vector<int>& ranks) {
  auto row = std::ranges::find_if(rows, [&](const Row& each) { return each.finding == finding; });
  if (row == rows.end()) {
    row = rows.insert(row, {.finding = finding, .ranks = {}});
  }
  std::set<int> all(row->ranks.begin(), row->ranks.end());
  all.insert(ranks.begin(), ranks.end());
  row->ranks.assign(all.begin(), all.end());
}

void sort_rows(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.finding.state < b.finding.state;
  });
}

const Node& node_of(const std::vector<Node>& nodes, int rank) {
  return *std::ranges::find_if(nodes, [&](const Node& node) {
    return std::binary_search(node.ranks.begin(), node.ranks.end(), rank);
  });
}

std::string to_table(const Report& report, bool shows_all) {
  const auto count = [&](State state) {
    const int n = report.count(state);
    return n == 0 ? fmt::format("no {}", to_string(state)) : count_of(n, to_string(state));
  };
  std::vector<Row> shown = report.rows;
  if (!shows_all) {
    std::erase_if(shown, [](const Row& row) { return row.finding.state > kWarning; });
  }
  std::size_t topic_width = 0;
  for (const Row& row : shown) {
    topic_width = std::max(topic_width, row.finding.topic.size() + 2);
  }
  const std::string title = fmt::format("unisono doctor on {}: {}, {}",
                                        describe_nodes(report.nodes),
                                        count(kProblem),
                                        count(kWarning));
  std::string text = wrap("", title, kWidth) + (shown.empty() ? "" : "\n");
  for (const Row& row : shown) {
    text += format_row(report.nodes, row, topic_width);
  }
  return text + format_links(report);
}

std::string to_json(const Report& report) {
  const Json json = {{"problems", report.count(kProblem)},
                     {"warnings", report.count(kWarning)},
                     {"nodes", to_json_list(report.nodes)},
                     {"findings", to_json_list(report.rows)},
                     {"pairs", to_json_list(report.links)}};
  // Bytes of a host's name or a file that are not UTF-8 become U+FFFD.
  return json.dump(-1, ' ', true, Json::error_handler_t::replace);
}

}  // namespace unisono::cli::doctor
