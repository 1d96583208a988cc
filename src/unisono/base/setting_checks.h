#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

/// Returns the setting that is most similar to an unknown environment variable: "UNISONO_LOG" for
/// "UNISONO_LGO". Empty if `name` is a setting or if no setting is similar.
[[nodiscard]] std::string similar_setting(std::string_view name);

/// Checks `text` as a list of aliases of this backend in torch.distributed, such as
/// "gloo=unisono,nccl=unisono". Returns the error message for the first invalid alias, std::nullopt
/// if the list is valid.
[[nodiscard]] std::optional<std::string> find_alias_problem(std::string_view text);

/// Parsed value of CUDA_VISIBLE_DEVICES.
struct VisibleDevices {
  /// The GPUs named before the first invalid entry: CUDA ignores that entry and all that follow.
  std::vector<std::string> names;
  /// Error message for the first invalid entry; empty if all entries are valid.
  std::string problem;
};

/// Parses a value such as "0,1", "GPU-8c4d..." or "MIG-...". An empty value or -1 hides all GPUs.
[[nodiscard]] VisibleDevices parse_visible_devices(const std::string& text);

}  // namespace unisono
