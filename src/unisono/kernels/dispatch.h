#pragma once

#include "unisono/kernels/targets.h"
// clang-format off: the order matters to Highway
#include <hwy/highway.h>
// clang-format on

#include <cstdint>
#include <type_traits>

// Replaces Highway's HWY_DYNAMIC_DISPATCH, which needs Highway's library. That library measures the
// clock when it is loaded: 2.6 ms at the start of each process.

#if (HWY_TARGETS & HWY_AVX3) != 0
#define UNISONO_AVX3(function) (&N_AVX3::function)
#else
#define UNISONO_AVX3(function) (nullptr)
#endif

#if (HWY_TARGETS & HWY_AVX2) != 0
#define UNISONO_AVX2(function) (&N_AVX2::function)
#else
#define UNISONO_AVX2(function) (nullptr)
#endif

#if (HWY_TARGETS & HWY_SSE4) != 0
#define UNISONO_SSE4(function) (&N_SSE4::function)
#else
#define UNISONO_SSE4(function) (nullptr)
#endif

// Returns the address of the version of `function` for the best usable instruction set; otherwise
// the version for the compiler's baseline.
#define UNISONO_DISPATCH(function)                             \
  (::unisono::kernels::for_best_target(UNISONO_AVX3(function), \
                                       UNISONO_AVX2(function), \
                                       UNISONO_SSE4(function), \
                                       &HWY_STATIC_DISPATCH(function)))

namespace unisono::kernels {

// Selects the version at run time. A version that was not compiled is null.
template <typename Function>
Function* for_best_target(std::type_identity_t<Function>* avx3,
                          std::type_identity_t<Function>* avx2,
                          std::type_identity_t<Function>* sse4,
                          Function* baseline) {
  const std::int64_t targets = usable_targets();
  if (avx3 != nullptr && (targets & HWY_AVX3) != 0) {
    return avx3;
  }
  if (avx2 != nullptr && (targets & HWY_AVX2) != 0) {
    return avx2;
  }
  return sse4 != nullptr && (targets & HWY_SSE4) != 0 ? sse4 : baseline;
}

}  // namespace unisono::kernels
