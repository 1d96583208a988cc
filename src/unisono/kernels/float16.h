#pragma once

#include <cstdint>

namespace unisono::kernels {

// One element at a time, for the reference and for tests; the vectorized loops have their own ways.
// All conversions to 16 bits round to nearest even, overflow to infinity, keep subnormals and turn
// every NaN into a quiet one.

[[nodiscard]] float float_from_f16(std::uint16_t bits);
[[nodiscard]] std::uint16_t f16_from_float(float value);

[[nodiscard]] float float_from_bf16(std::uint16_t bits);
[[nodiscard]] std::uint16_t bf16_from_float(float value);

}  // namespace unisono::kernels
