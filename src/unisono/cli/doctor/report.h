#pragma once

#include <string>
#include <vector>

#include "unisono/cli/doctor/finding.h"
#include "unisono/cli/doctor/link.h"

namespace unisono::cli::doctor {

/// What one rank found.
struct Examination {
  Findings of_process;
  Findings of_node;  ///< Would be the same on every rank of the node.
};

/// Ranks that share a machine.
struct Node {
  std::string name;
  std::vector<int> ranks;  ///< In order; none where a process alone can't tell its own.
};

/// A finding, and the ranks that it holds for.
struct Row {
  Finding finding;
  std::vector<int> ranks;
};

/// What is printed, as a table or as JSON.
struct Report {
  std::vector<Node> nodes;
  std::vector<Row> rows;  ///< Problems first.
  std::vector<Link> links;

  [[nodiscard]] int count(State state) const;
};

/// The findings of all ranks of `nodes`; equal ones become one row. `of_ranks` has an entry for
/// each rank; of_node of a node's first rank holds for the whole node, others' is left out.
[[nodiscard]] std::vector<Row> merge(const std::vector<Node>& nodes,
                                     const std::vector<Examination>& of_ranks);

/// Puts problems first, then warnings; else the order stays.
void sort_rows(std::vector<Row>& rows);

/// "0-3, 6".
[[nodiscard]] std::string describe_ranks(const std::vector<int>& ranks);

/// Lines for people. Without `shows_all` problems, warnings and links only.
[[nodiscard]] std::string to_table(const Report& report, bool shows_all);

/// One JSON document on one line, without a newline.
[[nodiscard]] std::string to_json(const Report& report);

}  // namespace unisono::cli::doctor
