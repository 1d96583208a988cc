#pragma once

#include <functional>
#include <vector>

#include "unisono/comm/process_group.h"

#include "support/ranks.h"

namespace unisono::test {

/// Worlds of four ranks: on one node, and on two in both ways.
extern const std::vector<World> kLayouts;

/// The sum of the ranks' values.
int sum_of(ProcessGroup& group, int value);

/// Expects that no descriptors, threads and memory are left of groups that `make_and_use` makes, on
/// all ranks of `group`, once for each round.
void expect_a_thousand_to_leave_nothing(ProcessGroup& group,
                                        const std::function<void(int round)>& make_and_use);

}  // namespace unisono::test
