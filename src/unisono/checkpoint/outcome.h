#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono::checkpoint {

/// Does `step` on this rank, and gives every rank what each has returned, by rank. A collective
/// operation.
///
/// Throws, on every rank the same, the Error of the first rank whose `step` has thrown one, which
/// the message names.
[[nodiscard]] std::vector<std::string> do_on_all(ProcessGroup& group,
                                                 std::optional<std::chrono::milliseconds> timeout,
                                                 const std::function<std::string()>& step);

}  // namespace unisono::checkpoint
