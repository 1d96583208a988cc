#include "unisono/kernels/targets.h"

// clang-format off: the order matters to Highway
#include <hwy/detect_targets.h>
// clang-format on

#include <atomic>
#include <cstdint>

#if HWY_ARCH_X86
#include <cpuid.h>
#endif

namespace unisono::kernels {
namespace {

#if HWY_ARCH_X86

// Checks the two features that clang's __builtin_cpu_supports() does not support.
bool has_f16c_and_lzcnt() noexcept {
  constexpr unsigned int kF16c = 1U << 29U;
  constexpr unsigned int kLzcnt = 1U << 5U;
  unsigned int a = 0;
  unsigned int b = 0;
  unsigned int basic = 0;
  unsigned int extended = 0;
  unsigned int d = 0;
  return __get_cpuid(1, &a, &b, &basic, &d) != 0 && (basic & kF16c) != 0 &&
         __get_cpuid(0x80000001U, &a, &b, &extended, &d) != 0 && (extended & kLzcnt) != 0;
}

std::int64_t detect_targets() noexcept {
  __builtin_cpu_init();
  std::int64_t targets = 0;
  if (__builtin_cpu_supports("sse4.2") == 0 || __builtin_cpu_supports("pclmul") == 0 ||
      __builtin_cpu_supports("aes") == 0) {
    return targets;
  }
  targets |= HWY_SSE4;
  if (__builtin_cpu_supports("avx2") == 0 || __builtin_cpu_supports("fma") == 0 ||
      __builtin_cpu_supports("bmi") == 0 || __builtin_cpu_supports("bmi2") == 0 ||
      !has_f16c_and_lzcnt()) {
    return targets;
  }
  targets |= HWY_AVX2;
  if (__builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512vl") != 0 &&
      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
      __builtin_cpu_supports("avx512cd") != 0) {
    targets |= HWY_AVX3;
  }
  return targets;
}

#else

// Other architectures use the compiler's baseline only.
std::int64_t detect_targets() noexcept {
  return HWY_STATIC_TARGET;
}

#endif

// The value 0 stands for no restriction.
std::atomic<std::int64_t>& restriction() noexcept {
  static std::atomic<std::int64_t> targets{0};
  return targets;
}

}  // namespace

std::int64_t supported_targets() noexcept {
  static const std::int64_t targets = detect_targets();
  return targets;
}

std::int64_t usable_targets() noexcept {
  const std::int64_t targets = restriction().load(std::memory_order_relaxed);
  return targets != 0 ? targets : supported_targets();
}

void restrict_targets(std::int64_t targets) noexcept {
  restriction().store(targets, std::memory_order_relaxed);
}

}  // namespace unisono::kernels
