#pragma once

namespace unisono::launch {

/// The cores that this process may run on, by its affinity mask; at least 1.
[[nodiscard]] int usable_cores();

}  // namespace unisono::launch
