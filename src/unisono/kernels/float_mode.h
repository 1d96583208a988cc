#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace unisono::kernels {

/// While it lives, this thread rounds to nearest even, keeps subnormals and traps nothing; then the
/// thread's former mode is back.
///
/// Whether a compiler moves arithmetic across the change is its own affair: do the arithmetic in a
/// function that is not inlined.
class FloatMode {
 public:
  FloatMode() : saved_(read()) {
    const Register wanted = wanted_from(saved_);
    is_changed_ = wanted != saved_;
    if (is_changed_) [[unlikely]] {
      write(wanted);
    }
  }

  ~FloatMode() {
    if (is_changed_) [[unlikely]] {
      write(saved_);
    }
  }

  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;
  FloatMode(FloatMode&&) = delete;
  FloatMode& operator=(FloatMode&&) = delete;

 private:
#if defined(__x86_64__)
  using Register = unsigned int;

  static Register read() { return _mm_getcsr(); }

  static void write(Register value) { _mm_setcsr(value); }

  // MXCSR: the lowest six bits only note what happened; then DAZ, six masks, rounding, FTZ.
  static Register wanted_from(Register value) { return (value & 0x3FU) | 0x1F80U; }
#elif defined(__aarch64__)
  using Register = std::uint64_t;

  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }

  static void write(Register value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

  // FPCR zero is round to nearest, subnormals kept, nothing trapped.
  static Register wanted_from(Register /*value*/) { return 0; }
#else
  using Register = int;

  static Register read() { return std::fegetround(); }

  static void write(Register value) { std::fesetround(value); }

  static Register wanted_from(Register /*value*/) { return FE_TONEAREST; }
#endif

  Register saved_;
  bool is_changed_ = false;
};

}  // namespace unisono::kernels
