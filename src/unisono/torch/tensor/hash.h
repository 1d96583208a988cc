#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// Returns a 64-bit hash of the bytes. Different bytes collide with probability 2^-64 by accident;
/// an attacker can construct collisions. `seed` chains calls.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

/// Returns a hash of the tensors' types, sizes and elements, to compare ranks or runs: equal hashes
/// mean equal bits, except for accidental collisions (see hash_bytes()). A tensor that is listed
/// twice counts once, as in Python's Module.parameters(). Undefined tensors are hashed as
/// undefined.
[[nodiscard]] std::uint64_t hash_tensors(const std::vector<at::Tensor>& tensors);

/// Returns the hash as 16 hexadecimal digits.
[[nodiscard]] std::string format_hash(std::uint64_t hash);

/// Throws Error(kMismatch) on every rank unless all ranks have the same tensors, bit for bit, under
/// the same names. The message begins with `who` and names the first tensor of rank 0 that differs
/// on another rank, with types, sizes and hashes on both. A collective operation: hashes all bytes
/// and sends 16 bytes.
///
/// Throws Error(kInvalidArgument) if all ranks have the same tensor that is not dense. If only some
/// ranks have such a tensor, the result is kMismatch. Tensors on devices are copied to the host,
/// each after the other, and may be compared with tensors in CPU memory.
void check_consistent(ProcessGroup& group,
                      const std::vector<NamedTensor>& tensors,
                      const std::string& who = "check_consistent",
                      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

/// Compares a named value of each rank.
void check_consistent(ProcessGroup& group,
                      const std::string& what,
                      const std::string& value,
                      const std::string& who,
                      std::optional<std::chrono::milliseconds> timeout = std::nullopt);

}  // namespace unisono
