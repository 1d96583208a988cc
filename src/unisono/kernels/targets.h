#pragma once

// Which instruction sets the kernels are compiled for; to be included before Highway. SSSE3 and
// AVX3_DL add nothing to their neighbours here, and SVE has never run our tests: NEON serves there.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// Highway's fallback for all other CPUs emulates vectors one lane at a time, which is no better
// than the reference's plain loops: no passes are compiled for it.
#define UNISONO_IS_VECTOR_TARGET (HWY_TARGET != HWY_SCALAR && HWY_TARGET != HWY_EMU128)
