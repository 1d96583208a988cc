#pragma once

#include <cstdint>

// Excludes instruction sets from the compilation of the kernels; include this file before Highway.
// SSSE3 and AVX3_DL are no faster than the neighboring sets, and SVE has never run the tests: NEON
// serves such CPUs.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Highway's fallback for all other CPUs emulates vectors lane by lane, which is no faster than the
// scalar reference, so no passes are compiled for the fallback.
#define UNISONO_IS_VECTOR_TARGET (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)

namespace unisono::kernels {

/// Returns the instruction sets that this CPU supports and for which the kernels can be compiled,
/// as Highway's bits.
[[nodiscard]] std::int64_t supported_targets() noexcept;

/// Returns the instruction sets among which the kernels choose the best.
[[nodiscard]] std::int64_t usable_targets() noexcept;

/// Restricts the kernels to `targets`; 0 removes the restriction. For tests.
void restrict_targets(std::int64_t targets) noexcept;

}  // namespace unisono::kernels
