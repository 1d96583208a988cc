#pragma once

// Which instruction sets the kernels are compiled for; to be included before Highway. SSSE3 and
// AVX3_DL add nothing to their neighbours here, and SVE has never run our tests: NEON serves there.
#define HWY_DISABLED_TARGETS \
  (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)

// The fallback for what has none of these. Highway shuns it before GCC 12.3 for a miscompiled high
// half of a product (GCC bug 106322), which no kernel uses; the tests run it like all others.
#define HWY_BROKEN_EMU128 0
