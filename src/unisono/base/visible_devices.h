#pragma once

#include <string>
#include <vector>

namespace unisono {

/// What CUDA_VISIBLE_DEVICES says.
struct VisibleDevices {
  /// Those that it names, up to the first that is wrong: CUDA sees no further.
  std::vector<std::string> names;
  std::string problem;  ///< What is wrong with that one; empty if nothing is.
};

/// `text` is "0,1", "GPU-8c4d...", "MIG-..."; empty or -1 hides all.
[[nodiscard]] VisibleDevices parse_visible_devices(const std::string& text);

}  // namespace unisono
