#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace unisono {

/// What is wrong with `text` as the names of torch.distributed's backends that shall mean Unisono,
/// like "gloo=unisono,nccl=unisono". Nothing if it can be used.
[[nodiscard]] std::optional<std::string> find_alias_problem(std::string_view text);

}  // namespace unisono
