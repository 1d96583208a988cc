#pragma once

#if defined(__x86_64__)
#include <xmmintrin.h>
#elif defined(__aarch64__)
#include <cstdint>
#else
#include <cfenv>
#endif

namespace unisono::kernels {

/// Sets the floating point mode of this thread during the lifetime of the object: round to nearest
/// even, keep subnormals, mask all traps. The destructor restores the earlier mode.
///
/// A compiler may move arithmetic across the mode change, so do the arithmetic in a function that
/// is not inlined.
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

  // MXCSR: the lowest six bits are sticky flags; the following bits are DAZ, six exception masks,
  // rounding and FTZ.
  static Register wanted_from(Register value) { return (value & 0x3FU) | 0x1F80U; }
#elif defined(__aarch64__)
  using Register = std::uint64_t;

  static Register read() {
    Register value;
    asm volatile("mrs %0, fpcr" : "=r"(value));
    return value;
  }

  static void write(Register value) { asm volatile("msr fpcr, %0" : : "r"(value) : "memory"); }

  // FPCR = 0: round to nearest, keep subnormals, no traps.
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
