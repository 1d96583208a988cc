#pragma once

#include <string>
#include <vector>

#include "support/ranks.h"

namespace unisono::testing {

/// Runs `body` on every rank of a new group. Each rank is a thread of this process with one compute
/// thread. Throws the first exception of a body.
void run_ranks(int world_size, const test::RankMain& body);

/// Runs `body` on ranks on several nodes: `nodes[r]` names the node of rank r.
void run_ranks(const std::vector<std::string>& nodes, const test::RankMain& body);

}  // namespace unisono::testing
