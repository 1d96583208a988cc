#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include "unisono/cli/doctor/report.h"

namespace unisono::cli::doctor {
namespace {

void add(std::vector<Row>& rows, const Finding& finding, const std::vector<int>& ranks) {
  const auto same = std::find_if(
      rows.begin(), rows.end(), [&](const Row& row) { return row.finding == finding; });
  if (same == rows.end()) {
    rows.push_back({.finding = finding, .ranks = ranks});
    return;
  }
  same->ranks.insert(same->ranks.end(), ranks.begin(), ranks.end());
}

}  // namespace

int Report::count(State state) const {
  return static_cast<int>(std::count_if(
      rows.begin(), rows.end(), [&](const Row& row) { return row.finding.state == state; }));
}

std::vector<Row> merge(const std::vector<Node>& nodes, const std::vector<Examination>& of_ranks) {
  std::vector<Row> rows;
  for (const Node& node : nodes) {
    for (const int rank : node.ranks) {
      const Examination& examination = of_ranks.at(static_cast<std::size_t>(rank));
      for (const Finding& finding : examination.of_process) {
        add(rows, finding, {rank});
      }
      if (rank == node.ranks.front()) {
        for (const Finding& finding : examination.of_node) {
          add(rows, finding, node.ranks);
        }
      }
    }
  }
  for (Row& row : rows) {
    std::sort(row.ranks.begin(), row.ranks.end());
    row.ranks.erase(std::unique(row.ranks.begin(), row.ranks.end()), row.ranks.end());
  }
  sort_rows(rows);
  return rows;
}

void sort_rows(std::vector<Row>& rows) {
  std::stable_sort(rows.begin(), rows.end(), [](const Row& a, const Row& b) {
    return a.finding.state < b.finding.state;
  });
}

std::string describe_ranks(const std::vector<int>& ranks) {
  std::string text;
  for (std::size_t first = 0; first < ranks.size();) {
    std::size_t last = first;
    while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
      ++last;
    }
    text += text.empty() ? "" : ", ";
    text += first == last ? fmt::format("{}", ranks[first])
                          : fmt::format("{}-{}", ranks[first], ranks[last]);
    first = last + 1;
  }
  return text;
}

}  // namespace unisono::cli::doctor
