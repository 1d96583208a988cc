#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/collective/topology.h"
#include "unisono/comm/objects.h"

namespace unisono::cli::doctor {
namespace {

using Codec = FieldCodec<std::size_t{1} << 20>;

NodeReport decode_report(std::string_view bytes, std::size_t rank) {
  std::optional<NodeReport> report = decode(bytes);
  if (!report) {
    throw Error(ErrorCode::kCorruptData,
                fmt::format("doctor: the report of rank {} can't be read", rank));
  }
  return *std::move(report);
}

// Returns the blocked links of all ranks, on every rank. The messages travel through rank 0: two
// ranks that do not reach each other may both reach rank 0.
BlockedLinks gather_blocked_links(ProcessGroup& group,
                                  const std::vector<Node>& nodes,
                                  std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kToConnect{4};
  const ObjectOptions options{.timeout = timeout + kToConnect};
  const NodeReport own{.blocked =
                           find_blocked_links(group.roster(), nodes, Deadline::after(kToConnect))};
  NodeReport all;
  const std::vector<std::string> messages = gather_object(group, encode(own), 0, options);
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    const BlockedLinks blocked = decode_report(messages[rank], rank).blocked;
    all.blocked.insert(all.blocked.end(), blocked.begin(), blocked.end());
  }
  const std::vector<std::string> copies(messages.size(), encode(all));
  return decode_report(scatter_object(group, copies, 0, options), 0).blocked;
}

// Returns the links in which this rank is the lower rank. First the first two ranks of each node
// measure their link, then the first ranks of the nodes, pair by pair.
std::vector<MeasuredLink> measure_links(ProcessGroup& group,
                                        const std::vector<Node>& nodes,
                                        const BlockedLinks& blocked) {
  std::vector<MeasuredLink> links;
  const auto measure = [&](int a, int b) {
    if ((group.rank() != a && group.rank() != b) || !is_open(blocked, a, b)) {
      return;
    }
    const MeasuredLink link = measure_link(group, group.rank() == a ? b : a);
    if (link.from < link.to) {
      links.push_back(link);
    }
  };
  for (const Node& node : nodes) {
    if (node.ranks.size() > 1) {
      measure(node.ranks[0], node.ranks[1]);
    }
  }
  for (const auto& round : pair_rounds(static_cast<int>(nodes.size()))) {
    for (const auto& [a, b] : round) {
      measure(nodes[static_cast<std::size_t>(a)].ranks[0],
              nodes[static_cast<std::size_t>(b)].ranks[0]);
    }
  }
  return links;
}

Report build_report(const std::vector<Node>& nodes,
                    const std::vector<std::string>& messages,
                    std::vector<Row> blocked) {
  Report report{.nodes = nodes, .rows = std::move(blocked), .links = {}};
  std::vector<LocalReport> of_ranks;
  for (std::size_t rank = 0; rank < messages.size(); ++rank) {
    NodeReport part = decode_report(messages[rank], rank);
    of_ranks.push_back(std::move(part.local));
    report.links.insert(report.links.end(), part.links.begin(), part.links.end());
  }
  std::ranges::sort(
      report.links, {}, [](const MeasuredLink& link) { return std::pair(link.from, link.to); });
  for (Row& row : merge(nodes, of_ranks)) {
    report.rows.push_back(std::move(row));
  }
  for (Finding& finding : rate_links(nodes, report.links)) {
    report.rows.push_back({.finding = std::move(finding), .ranks = {}});
  }
  sort_rows(report.rows);
  return report;
}

}  // namespace

std::string encode(const NodeReport& report) {
  ByteWriter writer;
  Codec::write(writer, report);
  const std::vector<std::byte>& bytes = writer.bytes();
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::optional<NodeReport> decode(std::string_view bytes) {
  ByteReader reader(std::as_bytes(std::span(bytes)));
  NodeReport report;
  const auto is_readable = [](const Finding& finding) { return finding.state <= kInfo; };
  const bool is_whole = Codec::read(reader, report) && reader.rest().empty() &&
                        std::ranges::all_of(report.local.of_process, is_readable) &&
                        std::ranges::all_of(report.local.of_node, is_readable);
  return is_whole ? std::optional(std::move(report)) : std::nullopt;
}

std::vector<Node> find_nodes(const transport::RankTable& roster) {
  const collective::Topology topology(roster.rank, roster.nodes());
  std::vector<Node> nodes;
  std::map<std::string, int> n_hosts;
  for (int i = 0; i < topology.n_nodes(); ++i) {
    const std::span<const int> ranks = topology.ranks_of(i);
    const std::string& host = roster.members.at(static_cast<std::size_t>(ranks[0])).host;
    nodes.push_back({.name = host, .ranks = {ranks.begin(), ranks.end()}});
    ++n_hosts[host];
  }
  for (Node& node : nodes) {
    if (n_hosts[node.name] > 1) {
      node.name += "/" + roster.members.at(static_cast<std::size_t>(node.ranks[0])).address.ip();
    }
  }
  return nodes;
}

std::vector<Row> merge(const std::vector<Node>& nodes, const std::vector<LocalReport>& of_ranks) {
  std::vector<Row> rows;
  for (const Node& node : nodes) {
    for (const int rank : node.ranks) {
      const LocalReport& report = of_ranks.at(static_cast<std::size_t>(rank));
      for (const Finding& finding : report.of_process) {
        add_row(rows, finding, {rank});
      }
      if (rank == node.ranks.front()) {
        for (const Finding& finding : report.of_node) {
          add_row(rows, finding, node.ranks);
        }
      }
    }
  }
  sort_rows(rows);
  return rows;
}

std::optional<Report> check_job(const Environment& environment,
                                const LocalReport& own,
                                std::chrono::milliseconds timeout) {
  const std::shared_ptr<ProcessGroup> group =
      create_process_group({.timeout = timeout, .environment = environment});
  const std::vector<Node> nodes = find_nodes(group->roster());
  const BlockedLinks blocked = gather_blocked_links(*group, nodes, timeout);
  const std::vector<MeasuredLink> links = measure_links(*group, nodes, blocked);
  // Ranks without a link to measure wait here for the other ranks.
  constexpr std::chrono::seconds kForARound{5};
  const std::vector<std::string> messages =
      gather_object(*group,
                    encode({.local = own, .links = links}),
                    0,
                    {.timeout = timeout + kForARound * static_cast<int>(nodes.size())});
  std::optional<Report> report;
  if (group->rank() == 0) {
    report = build_report(nodes, messages, report_blocked_links(blocked, group->roster()));
  }
  group->destroy();
  return report;
}

}  // namespace unisono::cli::doctor
