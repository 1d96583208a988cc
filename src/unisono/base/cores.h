#pragma once

namespace unisono {

/// Processors that this process may use at the same time: its affinity mask, less where its cgroup
/// allows less. At least 1.
[[nodiscard]] int available_cores();

/// Whether that is a core for each of `n` processes that share them, as ranks of a node do: then
/// they may spin while they wait.
[[nodiscard]] bool has_core_for_each(int n);

}  // namespace unisono
