#pragma once

#include <chrono>
#include <optional>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/cli/doctor/report.h"
#include "unisono/rendezvous/roster/roster.h"

namespace unisono::cli::doctor {

/// The nodes of a job, by their first rank. Of hosts with one name the address is part of theirs.
[[nodiscard]] std::vector<Node> find_nodes(const rendezvous::Roster& roster);

/// Meets the other ranks of the job that the environment describes, measures between them, and
/// gathers what all found on rank 0; nothing on the others. Two nodes that don't reach each other
/// are a finding, as long as both reach rank 0's. The meeting, and each message, takes at most
/// `timeout`.
///
/// Throws Error.
[[nodiscard]] std::optional<Report> examine_job(const Environment& environment,
                                                const Examination& own,
                                                std::chrono::milliseconds timeout);

}  // namespace unisono::cli::doctor
