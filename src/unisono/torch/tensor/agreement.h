#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono {

/// A property that must be equal on every rank: {"parameter 'fc.weight'", "f32[10, 128]"}.
struct Property {
  std::string what;
  std::string value;
};

/// Returns a message about the first difference between the properties of two ranks; std::nullopt
/// if the properties are equal.
[[nodiscard]] std::optional<std::string> find_difference(
    const std::vector<Property>& properties,
    int rank,
    const std::vector<Property>& other_properties,
    int other_rank);

/// A collective operation. Throws Error(kMismatch) on every rank unless all ranks have equal
/// properties. The message is `problem`, followed by a difference that is the same on all ranks.
/// Costs one all_reduce of 16 bytes if the properties are equal.
void check_agreement(ProcessGroup& group,
                     const std::vector<Property>& properties,
                     const std::string& problem,
                     std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono
