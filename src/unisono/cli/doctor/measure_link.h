#pragma once

#include <chrono>
#include <functional>
#include <utility>
#include <vector>

#include "unisono/cli/doctor/finding.h"
#include "unisono/cli/doctor/link.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/comm/process_group.h"

namespace unisono::cli::doctor {

/// Time since the epoch, as this rank's clock shows it.
using ClockReading = std::function<std::chrono::nanoseconds()>;

[[nodiscard]] std::chrono::nanoseconds read_wall_clock();

/// Measures latency, bandwidth and the difference of the clocks together with `peer`, which calls
/// it too; takes about half a second. The lower rank returns the figures; what the other returns
/// means nothing.
///
/// The difference is Cristian's, of the fastest round trip. Throws Error.
///
/// Source: F. Cristian, "Probabilistic clock synchronization", Distributed Computing 3 (1989).
[[nodiscard]] Link measure_link(ProcessGroup& group,
                                int peer,
                                const ClockReading& clock = read_wall_clock);

/// Rounds in which each of `n` meets each other once, and nobody two in a round.
[[nodiscard]] std::vector<std::vector<std::pair<int, int>>> pair_rounds(int n);

/// What is wrong with links between nodes: clocks that differ from the first node's by more than a
/// second, and, of three links or more, those of less than half the median bandwidth.
[[nodiscard]] Findings judge_links(const std::vector<Node>& nodes, const std::vector<Link>& links);

}  // namespace unisono::cli::doctor
