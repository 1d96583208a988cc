#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/cli/doctor/checks.h"
#include "unisono/comm/process_group.h"
#include "unisono/transport/rank_table.h"

namespace unisono::cli::doctor {

/// Ranks that share a machine.
struct Node {
  std::string name;
  std::vector<int> ranks;  ///< Sorted; empty if a process has no readable rank.
};

/// Measurements between two ranks.
struct MeasuredLink {
  int from = 0;
  int to = 0;
  double latency = 0;            ///< Seconds for a small message: half a round trip, the median.
  double bandwidth = 0;          ///< Bytes per second for large messages, the median.
  double bandwidth_back = 0;     ///< The bandwidth from `to` to `from`.
  double clock_difference = 0;   ///< Seconds by which the clock of `to` is ahead.
  double clock_uncertainty = 0;  ///< Largest error of the difference, in both directions.

  static auto members(auto& self) {
    return std::tie(self.from,
                    self.to,
                    self.latency,
                    self.bandwidth,
                    self.bandwidth_back,
                    self.clock_difference,
                    self.clock_uncertainty);
  }

  friend bool operator==(const MeasuredLink&, const MeasuredLink&) = default;
};

/// A finding and the ranks to which it applies.
struct Row {
  Finding finding;
  std::vector<int> ranks;
};

/// The content of the printed table or JSON document.
struct Report {
  std::vector<Node> nodes;
  std::vector<Row> rows;  ///< Problems first.
  std::vector<MeasuredLink> links;

  /// Returns the number of rows with that state.
  [[nodiscard]] int count(State state) const;
};

/// Adds a row, or the ranks to the row with an equal finding. The row's ranks stay sorted.
void add_row(std::vector<Row>& rows, const Finding& finding, const std::vector<int>& ranks);

/// Moves problems to the front, then warnings, and keeps the order otherwise.
void sort_rows(std::vector<Row>& rows);

/// Returns the node of `rank`, which must exist.
[[nodiscard]] const Node& node_of(const std::vector<Node>& nodes, int rank);

/// Returns lines for the user. Without `shows_all` the text has problems, warnings and links only.
[[nodiscard]] std::string to_table(const Report& report, bool shows_all);

/// Returns a JSON document on one line, without a newline.
[[nodiscard]] std::string to_json(const Report& report);

// Functions of links.cpp.

/// A rank does not reach the data port of another rank.
struct BlockedLink {
  int from = 0;
  int to = 0;
  std::string reason;  ///< "Connection refused".

  static auto members(auto& self) { return std::tie(self.from, self.to, self.reason); }

  friend bool operator==(const BlockedLink&, const BlockedLink&) = default;
};

using BlockedLinks = std::vector<BlockedLink>;

/// Connects from this rank to the first ranks of other nodes, and closes the connections.
[[nodiscard]] BlockedLinks find_blocked_links(const transport::RankTable& roster,
                                              const std::vector<Node>& nodes,
                                              Deadline deadline);

/// Returns true if neither direction is blocked.
[[nodiscard]] bool is_open(const BlockedLinks& blocked, int a, int b);

/// Returns a row for each blocked link. Equal links of a node's ranks share a row.
[[nodiscard]] std::vector<Row> report_blocked_links(const BlockedLinks& blocked,
                                                    const transport::RankTable& roster);

/// Function that returns the time since the epoch on this rank's clock.
using ClockReading = std::function<std::chrono::nanoseconds()>;

/// Reads the system clock.
[[nodiscard]] std::chrono::nanoseconds read_wall_clock();

/// Measures latency, bandwidth and the difference of the clocks together with `peer`, which calls
/// this function as well. Takes about half a second. The lower rank returns the measurements; the
/// result of the other rank has no meaning.
///
/// The difference is Cristian's estimate from the fastest round trip. Throws Error.
///
/// Source: F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
[[nodiscard]] MeasuredLink measure_link(ProcessGroup& group,
                                        int peer,
                                        const ClockReading& clock = read_wall_clock);

/// Returns rounds in which each pair of `n` members occurs once, and each member has one partner
/// per round at most.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> pair_rounds(int n);

/// Reports faults of links between nodes: clocks that differ from the clock of the first node by
/// more than a second, and links with less than half the median bandwidth if there are at least
/// three links.
[[nodiscard]] Findings rate_links(const std::vector<Node>& nodes,
                                  const std::vector<MeasuredLink>& links);

// Functions of gather.cpp.

/// The message of a rank to rank 0.
struct NodeReport {
  LocalReport local = {};
  std::vector<MeasuredLink> links = {};
  BlockedLinks blocked = {};

  static auto members(auto& self) { return std::tie(self.local, self.links, self.blocked); }
};

/// Returns the bytes of the message.
[[nodiscard]] std::string encode(const NodeReport& report);

/// Returns std::nullopt for bytes that encode() does not produce.
[[nodiscard]] std::optional<NodeReport> decode(std::string_view bytes);

/// Returns the nodes of a job in the order of their first ranks. The names of hosts with equal
/// names include the address.
[[nodiscard]] std::vector<Node> find_nodes(const transport::RankTable& roster);

/// Returns the findings of all ranks of `nodes`; equal findings share a row. `of_ranks` has an
/// entry for each rank. The of_node findings of a node's first rank hold for the whole node; those
/// of other ranks are left out.
[[nodiscard]] std::vector<Row> merge(const std::vector<Node>& nodes,
                                     const std::vector<LocalReport>& of_ranks);

/// Forms a process group of the job that the environment describes, measures the links, and gathers
/// all findings on rank 0. Other ranks return std::nullopt. Two nodes that do not reach each other
/// are a finding if both reach the node of rank 0. The rendezvous, and each message, takes
/// `timeout` at most.
///
/// Throws Error.
[[nodiscard]] std::optional<Report> check_job(const Environment& environment,
                                              const LocalReport& own,
                                              std::chrono::milliseconds timeout);

}  // namespace unisono::cli::doctor
