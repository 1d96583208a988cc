#include "unisono/kernels/test_support.h"

#include <hwy/detect_targets.h>

#include <cstdint>
#include <vector>

#include "unisono/kernels/instruction_sets.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#else
#include <cfenv>
#endif

namespace unisono::kernels {

std::vector<std::int64_t> instruction_sets() {
  std::vector<std::int64_t> targets;
  for (std::int64_t rest = supported_targets(); rest != 0; rest &= rest - 1) {
    targets.push_back(rest & -rest);
  }
  targets.push_back(HWY_STATIC_TARGET);
  return targets;
}

#if defined(__x86_64__)
namespace {

constexpr std::uint32_t kFlushAndRoundUp = 0x8000U | 0x4000U | 0x0040U | 0x1F80U;
constexpr std::uint32_t kSticky = 0x3FU;

}  // namespace

HostileMode::HostileMode() : saved_(_mm_getcsr()) {
  _mm_setcsr(kFlushAndRoundUp);
}

HostileMode::~HostileMode() {
  _mm_setcsr(static_cast<unsigned int>(saved_));
}

bool HostileMode::is_intact() const {
  return (_mm_getcsr() & ~kSticky) == kFlushAndRoundUp;
}
#else
HostileMode::HostileMode() : saved_(static_cast<std::uint64_t>(std::fegetround())) {
  std::fesetround(FE_UPWARD);
}

HostileMode::~HostileMode() {
  std::fesetround(static_cast<int>(saved_));
}

bool HostileMode::is_intact() const {
  return std::fegetround() == FE_UPWARD;
}
#endif

}  // namespace unisono::kernels
