#pragma once

#include "support/ranks.h"

namespace unisono::testing {

/// Runs `body` on every rank of a new group, each a thread of this process with one compute thread.
/// Throws the first exception that a body threw.
void run_ranks(int world_size, const test::RankMain& body);

}  // namespace unisono::testing
