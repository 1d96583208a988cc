#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/cli/doctor/finding.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {

/// A rank does not reach another one's data port.
struct Obstacle {
  int from = 0;
  int to = 0;
  std::string reason;  ///< "Connection refused".

  friend bool operator==(const Obstacle&, const Obstacle&) = default;
};

using Obstacles = std::vector<Obstacle>;

/// Connects from this rank to the first ranks of other nodes, and lets go.
[[nodiscard]] Obstacles find_obstacles(const rendezvous::Roster& roster,
                                       const std::vector<Node>& nodes,
                                       Deadline deadline);

/// True when neither direction has one.
[[nodiscard]] bool is_open(const Obstacles& obstacles, int a, int b);

/// Equal ones of a node's ranks are one row.
[[nodiscard]] std::vector<Row> report_obstacles(const Obstacles& obstacles,
                                                const rendezvous::Roster& roster);

/// Bytes of two lists, one behind the other, are those of both.
[[nodiscard]] std::string encode(const Obstacles& obstacles);

/// Nothing for bytes that encode() does not make.
[[nodiscard]] std::optional<Obstacles> decode_obstacles(std::string_view bytes);

}  // namespace unisono::cli::doctor
