#pragma once

#include <array>
#include <span>
#include <string_view>

#include "unisono/base/buffer.h"

namespace unisono::engine {

/// What carries out a group's operations, under the name by which users ask for it.
struct Backend {
  std::string_view name;
  std::array<std::string_view, 2> other_names;
  std::string_view help;  ///< What it is; of one that is not built in, what to do instead.
  bool is_built_in;
  bool has_cpu;
  bool has_cuda;

  [[nodiscard]] bool has(DeviceType device) const {
    return is_built_in && (device == DeviceType::kCpu ? has_cpu : has_cuda);
  }
};

/// Those that are built in, and others that users of torch.distributed know.
[[nodiscard]] std::span<const Backend> backends();

/// Throws Error(kInvalidArgument) with what to do, if there is no such backend or it is not built
/// in.
[[nodiscard]] const Backend& find_backend(std::string_view name);

/// The operations that each backend which is built in has, on each of its devices: the names of
/// ProcessGroup's members.
[[nodiscard]] std::span<const std::string_view> operation_names();

}  // namespace unisono::engine
