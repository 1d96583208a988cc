#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono {

/// Something that every rank must have alike: {"parameter 'fc.weight'", "f32[10, 128]"}.
struct Property {
  std::string what;
  std::string value;
};

/// Where the properties of two ranks differ first, as a message; nothing if they are equal.
[[nodiscard]] std::optional<std::string> find_difference(
    const std::vector<Property>& properties,
    int rank,
    const std::vector<Property>& other_properties,
    int other_rank);

/// A collective operation. Throws an Error(kMismatch) on every rank unless all ranks have the same
/// properties: `problem`, then the same difference everywhere. Costs one all_reduce of 16 bytes
/// when they do.
void check_agreement(ProcessGroup& group,
                     const std::vector<Property>& properties,
                     const std::string& problem,
                     std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono
