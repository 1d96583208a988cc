#pragma once

#include "unisono/comm/process_group.h"

namespace unisono::test {

/// All ranks that mpirun has started, in a group of backend unisono: beside what is tested.
[[nodiscard]] ProcessGroup& everyone();

}  // namespace unisono::test
