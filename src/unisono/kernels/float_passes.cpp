#include <hwy/base.h>

#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/kernels/pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unisono/kernels/float_passes.cpp"
#include "unisono/kernels/targets.h"
// clang-format off: the order matters to Highway
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
#include "unisono/kernels/pass-inl.h"
// clang-format on

HWY_BEFORE_NAMESPACE();

namespace unisono::kernels::HWY_NAMESPACE {
namespace {

#if UNISONO_IS_VECTOR_TARGET

// Lanes alternate between real and imaginary parts.
struct ComplexProduct {
  static constexpr std::size_t kUnit = 2;

  template <class D, class V>
  static HWY_INLINE V apply(D /*d*/, V a, V b) {
    const V real = hn::Mul(hn::DupEven(a), b);
    const V imaginary = hn::Mul(hn::DupOdd(a), hn::Reverse2(D(), b));
    return hn::OddEven(hn::Add(real, imaginary), hn::Sub(real, imaginary));
  }
};

// Only sums get the wide passes, because training spends most of its time with sums.
template <class T>
Pass real_pass(LaneOp op, int n_inputs) {
  switch (op) {
    case LaneOp::kSum:
      return pass_of_up_to_eight<Plain<T>, Plain<T>, Sum>(n_inputs);
    case LaneOp::kScaledSum:
      return scaled_pass<Plain<T>, Plain<T>>(n_inputs);
    default:
      return float_pass<Plain<T>, Plain<T>>(op, n_inputs);
  }
}

Pass choose_float_pass(const PassKey& key) {
  switch (key.dtype) {
    case DType::kFloat32:
      return real_pass<float>(key.op, key.n_inputs);
    case DType::kFloat64:
      return real_pass<double>(key.op, key.n_inputs);
    case DType::kComplex64:
      return pass_of_one_or_two<Plain<float>, Plain<float>, ComplexProduct>(key.n_inputs);
    case DType::kComplex128:
      return pass_of_one_or_two<Plain<double>, Plain<double>, ComplexProduct>(key.n_inputs);
    default:
      return nullptr;
  }
}
#else
Pass choose_float_pass(const PassKey& /*key*/) {
  return nullptr;
}
#endif

}  // namespace
}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "unisono/kernels/dispatch.h"

namespace unisono::kernels {
Pass find_float_pass(const PassKey& key) {
  return UNISONO_DISPATCH(choose_float_pass)(key);
}

}  // namespace unisono::kernels
#endif  // HWY_ONCE
