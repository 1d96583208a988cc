#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// Throws an Error(kMismatch) on every rank unless all ranks have the same tensors, bit for bit,
/// under the same names: `who`, then the first tensor of rank 0 that another rank has otherwise,
/// with types, sizes and hashes on both. A collective operation; hashes all bytes and sends 16.
///
/// Throws Error(kInvalidArgument) where all ranks have the same one that is not dense or not in CPU
/// memory; where only some have, they differ.
void check_consistent(ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors,
                      const std::string& who = "check_consistent",
                      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

/// The same for one value of each rank, named `what`.
void check_consistent(ProcessGroup& group,
                      const std::string& what,
                      const std::string& value,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace unisono
