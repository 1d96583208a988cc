#pragma once

namespace unisono {

/// Processors that this process may use at the same time: its affinity mask, less where its cgroup
/// allows less. At least 1.
[[nodiscard]] int available_cores();

}  // namespace unisono
