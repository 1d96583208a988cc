#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"

namespace unisono::ddp {

/// Something that every rank must have alike: {"parameter 'fc.weight'", "f32[10, 128]"}.
struct Claim {
  std::string what;
  std::string value;
};

/// Where the claims of two ranks differ first, as a message; nothing if they are equal.
[[nodiscard]] std::optional<std::string> find_difference(const std::vector<Claim>& claims,
                                                         int rank,
                                                         const std::vector<Claim>& other_claims,
                                                         int other_rank);

/// A collective operation. Throws an Error(kMismatch) on every rank unless all ranks make the same
/// claims: `problem`, then the same difference everywhere. Costs one all_reduce of 16 bytes when
/// they do.
void check_agreement(ProcessGroup& group,
                     const std::vector<Claim>& claims,
                     const std::string& problem,
                     std::optional<std::chrono::milliseconds> timeout);

}  // namespace unisono::ddp
