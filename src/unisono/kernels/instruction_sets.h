#pragma once

#include <cstdint>

namespace unisono::kernels {

/// The instruction sets that this CPU has of those the kernels can be compiled for, as Highway's
/// bits.
[[nodiscard]] std::int64_t supported_targets() noexcept;

/// Which of them the kernels use the best of.
[[nodiscard]] std::int64_t usable_targets() noexcept;

/// Makes the kernels use these only; 0 means all that the CPU has, as at the start. For tests.
void restrict_targets(std::int64_t targets) noexcept;

}  // namespace unisono::kernels
