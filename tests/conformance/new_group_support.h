#pragma once

#include <functional>
#include <vector>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::test {

/// Layouts of four ranks: one node, and two nodes in both orders.
extern const std::vector<World> kLayouts;

/// Returns the sum of the ranks' values.
int sum_of(ProcessGroup& group, int value);

/// Calls `make_and_use` on all ranks of `group`, once for each round. Expects that its groups leave
/// no descriptors, threads or memory behind.
void expect_a_thousand_to_leave_nothing(ProcessGroup& group,
                                        const std::function<void(int round)>& make_and_use);

}  // namespace unisono::test
