#pragma once

#include "unisono/comm/process_group.h"

namespace unisono::test {

/// Returns a group of backend unisono with all ranks that mpirun has started, in addition to the
/// tested groups.
[[nodiscard]] ProcessGroup& everyone();

}  // namespace unisono::test
