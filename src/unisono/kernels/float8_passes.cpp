#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>

#include "unisono/kernels/small_floats.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unisono/kernels/float8_passes.cpp"
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

using F = hn::ScalableTag<float>;
using U = hn::RebindToUnsigned<F>;
using Codes = hn::Rebind<std::uint8_t, F>;

constexpr auto kBlock = static_cast<std::size_t>(kFloat8Block);

HWY_INLINE std::uint32_t largest_magnitude(const std::uint8_t* floats) {
  const U du;
  auto largest = hn::Zero(du);
  for (std::size_t index = 0; index < kBlock; index += hn::Lanes(du)) {
    const auto bits = load_bytes(du, floats + index * sizeof(float));
    largest = hn::Max(largest, hn::And(bits, hn::Set(du, 0x7FFF'FFFF)));
  }
  return hn::GetLane(hn::MaxOfLanes(du, largest));
}

float encode_block(const std::uint8_t* floats, std::uint8_t* codes) {
  const F d;
  const U du;
  const std::uint32_t largest = largest_magnitude(floats);
  const float scale = std::bit_cast<float>(largest) / kFloat8Largest;
  if (largest >= kInfinityBits || scale < kLeastFloat8Scale) {
    std::fill_n(codes, kBlock, std::uint8_t{0});
    return largest >= kInfinityBits ? std::numeric_limits<float>::quiet_NaN() : 0.0F;
  }
  const auto inverse_scale = hn::Set(d, 1 / scale);
  for (std::size_t index = 0; index < kBlock; index += hn::Lanes(d)) {
    const auto value = load_bytes(d, floats + index * sizeof(float));
    const auto sign = hn::And(hn::ShiftRight<24>(hn::BitCast(du, value)), hn::Set(du, 0x80));
    const auto scaled = hn::Mul(hn::Abs(value), inverse_scale);
    const auto bits = hn::BitCast(du, scaled);
    const auto odd = hn::And(hn::ShiftRight<20>(bits), hn::Set(du, 1));
    const auto rounded = hn::Add(hn::Add(bits, hn::Set(du, 0x7'FFFF)), odd);
    const auto normal = hn::ShiftRight<20>(hn::Sub(rounded, hn::Set(du, kFloat8Rebias)));
    const auto aligner = hn::Set(d, kFloat8Aligner);
    const auto subnormal =
        hn::Sub(hn::BitCast(du, hn::Add(scaled, aligner)), hn::BitCast(du, aligner));
    const auto is_subnormal = hn::RebindMask(du, hn::Lt(scaled, hn::Set(d, kFloat8SmallestNormal)));
    const auto code = hn::Or(sign, hn::IfThenElse(is_subnormal, subnormal, normal));
    hn::StoreU(hn::TruncateTo(Codes(), code), Codes(), codes + index);
  }
  return scale;
}

void decode_block(const std::uint8_t* codes, float scale, std::uint8_t* floats) {
  const F d;
  const U du;
  for (std::size_t index = 0; index < kBlock; index += hn::Lanes(d)) {
    const auto code = hn::PromoteTo(du, hn::LoadU(Codes(), codes + index));
    const auto magnitude = hn::And(code, hn::Set(du, 0x7F));
    const auto sign = hn::ShiftLeft<24>(hn::And(code, hn::Set(du, 0x80)));
    const auto normal =
        hn::BitCast(d, hn::Add(hn::ShiftLeft<20>(magnitude), hn::Set(du, kFloat8Rebias)));
    const auto aligner = hn::Set(d, kFloat8Aligner);
    const auto subnormal =
        hn::Sub(hn::BitCast(d, hn::Add(hn::BitCast(du, aligner), magnitude)), aligner);
    const auto is_subnormal = hn::RebindMask(d, hn::Lt(magnitude, hn::Set(du, 8)));
    const auto value = hn::Mul(hn::IfThenElse(is_subnormal, subnormal, normal), hn::Set(d, scale));
    store_bytes(hn::Xor(value, hn::BitCast(d, sign)), d, floats + index * sizeof(float), false);
  }
}

EncodeFloat8Block choose_encoder() {
  return encode_block;
}

DecodeFloat8Block choose_decoder() {
  return decode_block;
}
#else
EncodeFloat8Block choose_encoder() {
  return encode_float8_reference;
}

DecodeFloat8Block choose_decoder() {
  return decode_float8_reference;
}
#endif

}  // namespace
}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "unisono/kernels/dispatch.h"

namespace unisono::kernels {
EncodeFloat8Block float8_encoder() {
  return UNISONO_DISPATCH(choose_encoder)();
}

DecodeFloat8Block float8_decoder() {
  return UNISONO_DISPATCH(choose_decoder)();
}

}  // namespace unisono::kernels
#endif  // HWY_ONCE
