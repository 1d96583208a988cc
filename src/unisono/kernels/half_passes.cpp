#include <cstddef>
#include <cstdint>

#include "unisono/base/buffer.h"
#include "unisono/kernels/pass.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unisono/kernels/half_passes.cpp"
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

constexpr std::uint32_t kSignBit = 0x8000'0000;
constexpr std::int32_t kF32Infinity = 0x7F80'0000;

template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> load_u16(D /*d*/, const std::uint8_t* from) {
  const hn::Rebind<std::uint16_t, D> d16;
  return hn::PromoteTo(hn::RebindToUnsigned<D>(), load_bytes(d16, from));
}

template <class D, class V>
HWY_INLINE void store_u16(V bits, D /*d*/, std::uint8_t* to, bool is_streaming) {
  const hn::Rebind<std::uint16_t, D> d16;
  store_bytes(hn::TruncateTo(d16, bits), d16, to, is_streaming);
}

struct BFloat16 {
  using Lane = float;
  using Memory = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return hn::BitCast(d, hn::ShiftLeft<16>(load_u16(d, from)));
  }

  template <class D>
  static HWY_INLINE void store(hn::Vec<D> v, D d, std::uint8_t* to, bool is_streaming) {
    const hn::RebindToUnsigned<D> du;
    const auto bits = hn::BitCast(du, v);
    const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7FFF)), odd);
    const auto quiet = hn::Or(bits, hn::Set(du, 0x0040'0000));
    const auto is_nan = hn::RebindMask(du, hn::IsNaN(v));
    store_u16(hn::ShiftRight<16>(hn::IfThenElse(is_nan, quiet, rounded)), d, to, is_streaming);
  }
};

#if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
// Uses the CPU's conversions, which give the same results as the arithmetic below.
struct Float16 {
  using Lane = float;
  using Memory = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    return hn::PromoteTo(d, load_bytes(hn::Rebind<hwy::float16_t, D>(), from));
  }

  template <class D>
  static HWY_INLINE void store(hn::Vec<D> v, D /*d*/, std::uint8_t* to, bool is_streaming) {
    const hn::Rebind<hwy::float16_t, D> d16;
    store_bytes(hn::DemoteTo(d16, v), d16, to, is_streaming);
  }
};
#else
// Uses integer arithmetic, and float arithmetic that is exact or rounded once. Comparisons are
// signed, because older instruction sets have no unsigned comparisons. Source: F. Giesen,
// "Half-precision floating point conversions" (2012): an integer addition changes the exponent, and
// a float addition of a power of two normalizes or creates a subnormal.
struct Float16 {
  using Lane = float;
  using Memory = std::uint16_t;

  static constexpr std::uint32_t kExponentMask = 0x7C00U << 13U;
  static constexpr std::uint32_t kRebias = (127U - 15U) << 23U;
  static constexpr std::int32_t kSmallestNormal = 113 << 23;  // 2^-14
  static constexpr std::int32_t kTooLarge = 143 << 23;        // 2^16

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const std::uint8_t* from) {
    const hn::RebindToUnsigned<D> du;
    const auto half = load_u16(d, from);
    const auto sign = hn::ShiftLeft<16>(hn::And(half, hn::Set(du, 0x8000)));
    const auto shifted = hn::ShiftLeft<13>(hn::And(half, hn::Set(du, 0x7FFF)));
    const auto exponent = hn::And(shifted, hn::Set(du, kExponentMask));
    const auto normal = hn::Add(shifted, hn::Set(du, kRebias));
    const auto special = hn::Add(normal, hn::Set(du, kRebias));
    const auto with_leading_one = hn::BitCast(d, hn::Add(normal, hn::Set(du, 1U << 23U)));
    const auto subnormal = hn::BitCast(du, hn::Sub(with_leading_one, hn::Set(d, 0x1p-14F)));
    const auto is_subnormal = hn::Eq(exponent, hn::Zero(du));
    const auto is_special = hn::Eq(exponent, hn::Set(du, kExponentMask));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    return hn::BitCast(d, hn::Or(sign, hn::IfThenElse(is_special, special, finite)));
  }

  template <class D>
  static HWY_INLINE void store(hn::Vec<D> v, D d, std::uint8_t* to, bool is_streaming) {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const auto bits = hn::BitCast(du, v);
    const auto sign = hn::And(bits, hn::Set(du, kSignBit));
    const auto magnitude = hn::Xor(bits, sign);
    const auto compared = hn::BitCast(di, magnitude);
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(du, 1));
    const auto biased = hn::Add(magnitude, hn::Set(du, 0xFFFU - kRebias));
    const auto normal = hn::ShiftRight<13>(hn::Add(biased, odd));
    // The last bit of 1/2 has the weight of f16's smallest subnormal.
    const auto aligned = hn::Add(hn::BitCast(d, magnitude), hn::Set(d, 0.5F));
    const auto subnormal = hn::Sub(hn::BitCast(du, aligned), hn::Set(du, 126U << 23U));
    const auto is_nan = hn::RebindMask(du, hn::Gt(compared, hn::Set(di, kF32Infinity)));
    const auto special = hn::IfThenElse(is_nan, hn::Set(du, 0x7E00), hn::Set(du, 0x7C00));
    const auto is_subnormal = hn::RebindMask(du, hn::Lt(compared, hn::Set(di, kSmallestNormal)));
    const auto is_special = hn::RebindMask(du, hn::Gt(compared, hn::Set(di, kTooLarge - 1)));
    const auto finite = hn::IfThenElse(is_subnormal, subnormal, normal);
    const auto half = hn::IfThenElse(is_special, special, finite);
    store_u16(hn::Or(half, hn::ShiftRight<16>(sign)), d, to, is_streaming);
  }
};
#endif

// Only sums combine 16-bit elements in one pass, because training spends most of its time with
// sums. Other operations widen the elements in a separate pass.
template <class Half>
Pass half_pass(const PassKey& key) {
  if (key.is_input_partial) {
    return float_pass<Plain<float>, Half>(key.op, key.n_inputs);
  }
  if (key.op == LaneOp::kScaledSum) {
    return key.is_output_partial ? scaled_pass<Half, Plain<float>>(key.n_inputs)
                                 : scaled_pass<Half, Half>(key.n_inputs);
  }
  if (key.n_inputs > 1 && key.op != LaneOp::kSum) {
    return nullptr;
  }
  return key.is_output_partial ? pass_of_one_or_two<Half, Plain<float>, Sum>(key.n_inputs)
                               : pass_of_up_to_four<Half, Half, Sum>(key.n_inputs);
}

Pass choose_half_pass(const PassKey& key) {
  return key.dtype == DType::kFloat16 ? half_pass<Float16>(key) : half_pass<BFloat16>(key);
}
#else
Pass choose_half_pass(const PassKey& /*key*/) {
  return nullptr;
}
#endif

}  // namespace
}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "unisono/kernels/dispatch.h"

namespace unisono::kernels {
Pass find_half_pass(const PassKey& key) {
  return UNISONO_DISPATCH(choose_half_pass)(key);
}

}  // namespace unisono::kernels
#endif  // HWY_ONCE
