#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::ddp {

// Whether no element is an infinity or NaN: a pass over the bits, which the compiler vectorizes.

/// Of numbers of 16 bits whose exponent's bits are `exponent`.
[[nodiscard]] bool are_all_finite(std::span<const std::uint16_t> bits, std::uint16_t exponent);

[[nodiscard]] bool are_all_finite(std::span<const float> numbers);
[[nodiscard]] bool are_all_finite(std::span<const double> numbers);

}  // namespace unisono::ddp
