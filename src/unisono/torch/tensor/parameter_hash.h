#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

namespace unisono {

/// A hash over the tensors' types, sizes and elements, to compare ranks or runs: equal hashes mean
/// equal bits. A tensor that comes twice counts once, as in Python's Module.parameters(); undefined
/// tensors count as such.
[[nodiscard]] std::uint64_t hash_tensors(const std::vector<at::Tensor>& tensors);

/// The hash as people compare it: 16 hexadecimal digits.
[[nodiscard]] std::string format_hash(std::uint64_t hash);

}  // namespace unisono
