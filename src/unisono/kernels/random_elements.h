#pragma once

#include <cstddef>
#include <optional>
#include <random>

#include "unisono/base/dtype.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {

using Random = std::mt19937;

[[nodiscard]] int pick(Random& random, int from, int to);
[[nodiscard]] bool one_in(Random& random, int n);

/// Ordinary numbers, edge cases, and any bits at all.
void fill(const OffsetBytes& bytes, std::size_t n_bytes, DType dtype, Random& random);

/// The first number that differs, NaNs being equal to each other.
[[nodiscard]] std::optional<std::size_t> first_difference(const std::byte* expected,
                                                          const std::byte* actual,
                                                          std::size_t n_bytes,
                                                          DType dtype);

}  // namespace unisono::kernels
