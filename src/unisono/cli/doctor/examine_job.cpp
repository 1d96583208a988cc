#include "unisono/cli/doctor/examine_job.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/deadline.h"
#include "unisono/base/error.h"
#include "unisono/cli/doctor/codec.h"
#include "unisono/cli/doctor/find_obstacles.h"
#include "unisono/cli/doctor/measure_link.h"
#include "unisono/comm/objects.h"
#include "unisono/comm/process_group.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {
namespace {

Error unreadable(const std::string& what) {
  return {ErrorCode::kCorruptData, fmt::format("doctor: {} can't be read", what)};
}

// Takes a detour: those who don't reach each other may both reach rank 0.
Obstacles gather_obstacles(ProcessGroup& group,
                           const std::vector<Node>& nodes,
                           std::chrono::milliseconds timeout) {
  constexpr std::chrono::seconds kForAnAnswer{4};
  const ObjectOptions options{.timeout = timeout + kForAnAnswer};
  const std::string own =
      encode(find_obstacles(group.roster(), nodes, Deadline::after(kForAnAnswer)));
  std::string all;
  for (const std::string& part : gather_object(group, own, 0, options)) {
    all += part;
  }
  std::vector<std::string> copies;
  if (group.rank() == 0) {
    copies.assign(static_cast<std::size_t>(group.world_size()), all);
  }
  std::optional<Obstacles> obstacles = decode_obstacles(scatter_object(group, copies, 0, options));
  if (!obstacles) {
    throw unreadable("who reaches whom");
  }
  return *std::move(obstacles);
}

// The links of this rank that it leads. The first two ranks of each node measure theirs, then the
// nodes' first ranks, pair by pair.
std::vector<Link> measure_links(ProcessGroup& group,
                                const std::vector<Node>& nodes,
                                const Obstacles& obstacles) {
  std::vector<Link> links;
  const auto measure = [&](int a, int b) {
    if ((group.rank() != a && group.rank() != b) || !is_open(obstacles, a, b)) {
      return;
    }
    const Link link = measure_link(group, group.rank() == a ? b : a);
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

Report put_together(const std::vector<Node>& nodes,
                    const std::vector<std::string>& all,
                    std::vector<Row> obstacles) {
  Report report{.nodes = nodes, .rows = {}, .links = {}};
  std::vector<Examination> examinations;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    std::optional<Contribution> contribution = decode(all[rank]);
    if (!contribution) {
      throw unreadable(fmt::format("what rank {} found", rank));
    }
    examinations.push_back(std::move(contribution->examination));
    report.links.insert(report.links.end(), contribution->links.begin(), contribution->links.end());
  }
  std::sort(report.links.begin(), report.links.end(), [](const Link& a, const Link& b) {
    return std::pair(a.from, a.to) < std::pair(b.from, b.to);
  });
  report.rows = std::move(obstacles);
  for (Row& row : merge(nodes, examinations)) {
    report.rows.push_back(std::move(row));
  }
  for (Finding& finding : judge_links(nodes, report.links)) {
    report.rows.push_back({.finding = std::move(finding), .ranks = {}});
  }
  sort_rows(report.rows);
  return report;
}

}  // namespace

std::vector<Node> find_nodes(const rendezvous::Roster& roster) {
  std::vector<Node> nodes;
  std::vector<const rendezvous::Member*> firsts;
  for (const rendezvous::Member& member : roster.members) {
    const auto same = std::find_if(firsts.begin(), firsts.end(), [&](const auto* first) {
      return first->node == member.node;
    });
    if (same == firsts.end()) {
      firsts.push_back(&member);
      nodes.push_back({.name = member.host, .ranks = {member.rank}});
    } else {
      nodes[static_cast<std::size_t>(same - firsts.begin())].ranks.push_back(member.rank);
    }
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const auto n_named_so = std::count_if(firsts.begin(), firsts.end(), [&](const auto* first) {
      return first->host == firsts[i]->host;
    });
    if (n_named_so > 1) {
      nodes[i].name += "/" + firsts[i]->address;
    }
  }
  return nodes;
}

std::optional<Report> examine_job(const Environment& environment,
                                  const Examination& own,
                                  std::chrono::milliseconds timeout) {
  const std::shared_ptr<ProcessGroup> group =
      create_process_group({.timeout = timeout, .environment = environment});
  const std::vector<Node> nodes = find_nodes(group->roster());
  const Obstacles obstacles = gather_obstacles(*group, nodes, timeout);
  const std::vector<Link> links = measure_links(*group, nodes, obstacles);
  // Those that have no links to measure wait here for the others.
  constexpr std::chrono::seconds kForARound{5};
  const auto patience = timeout + kForARound * nodes.size();
  const std::vector<std::string> all =
      gather_object(*group,
                    encode({.examination = own, .links = links}),
                    0,
                    {.timeout = std::chrono::duration_cast<std::chrono::milliseconds>(patience)});
  std::optional<Report> report;
  if (group->rank() == 0) {
    report = put_together(nodes, all, report_obstacles(obstacles, group->roster()));
  }
  group->destroy();
  return report;
}

}  // namespace unisono::cli::doctor
