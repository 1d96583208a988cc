// Source: Gopal, Ozturk, Guilford et al., "Fast CRC computation for generic polynomials using
// PCLMULQDQ instruction", Intel, 2009.
//
// A CRC is the remainder of a polynomial. 16 bytes of the message can be replaced by 16 other bytes
// with the same remainder at a later position, where they are added to the existing bytes. Folding
// thus reduces the message to the last 16 bytes; zlib computes the CRC of these bytes.
#include "unisono/kernels/crc32.h"

#include <array>
#include <cstddef>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "unisono/kernels/crc32.cpp"
#include "unisono/kernels/targets.h"
// clang-format off: the order matters to Highway
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#ifndef UNISONO_KERNELS_CRC32_ONCE
#define UNISONO_KERNELS_CRC32_ONCE

namespace unisono::kernels {
namespace {

constexpr std::size_t kRegisterBytes = 16;
constexpr std::size_t kStepBytes = 4 * kRegisterBytes;

using Register = std::array<std::uint8_t, kRegisterBytes>;
// Folds a positive multiple of kStepBytes bytes into 16 bytes. `state` is the CRC register before
// these bytes.
using Fold = Register (*)(const std::uint8_t* bytes, std::size_t n_bytes, std::uint32_t state);

// Returns the remainder of x^n with reflected bits: the highest power comes first.
constexpr std::uint64_t factor(int n) {
  std::uint32_t remainder = 0x8000'0000;  // x^0
  for (int i = 0; i < n; ++i) {
    remainder = (remainder >> 1U) ^ ((remainder & 1U) != 0 ? 0xEDB8'8320U : 0U);
  }
  // The product of two reflected numbers is one bit too short.
  return std::uint64_t{remainder} << 1U;
}

// Returns the factors that move the lower and the upper half of a register by `n_bits` bits.
constexpr std::array<std::uint64_t, 2> factors(int n_bits) {
  return {factor(n_bits + 32), factor(n_bits - 32)};
}

}  // namespace
}  // namespace unisono::kernels
#endif

HWY_BEFORE_NAMESPACE();

namespace unisono::kernels::HWY_NAMESPACE {
namespace {

#if HWY_ARCH_X86 && UNISONO_IS_VECTOR_TARGET && HWY_TARGET <= HWY_SSE4

namespace hn = hwy::HWY_NAMESPACE;

using D = hn::FixedTag<std::uint64_t, 2>;
using V = hn::Vec<D>;

HWY_INLINE V load(const std::uint8_t* bytes) {
  return hn::BitCast(D(), hn::LoadU(hn::Repartition<std::uint8_t, D>(), bytes));
}

HWY_INLINE V fold(V before, V by, V behind) {
  return hn::Xor(hn::Xor(hn::CLMulLower(before, by), hn::CLMulUpper(before, by)), behind);
}

Register fold_steps(const std::uint8_t* bytes, std::size_t n_bytes, std::uint32_t state) {
  static constexpr auto kByStep = factors(8 * static_cast<int>(kStepBytes));
  static constexpr auto kByRegister = factors(8 * static_cast<int>(kRegisterBytes));
  const D d;
  const std::array<std::uint64_t, 2> first{state, 0};
  V a = hn::Xor(load(bytes), hn::LoadU(d, first.data()));
  V b = load(bytes + kRegisterBytes);
  V c = load(bytes + 2 * kRegisterBytes);
  V e = load(bytes + 3 * kRegisterBytes);
  const V by_step = hn::LoadU(d, kByStep.data());
  for (std::size_t at = kStepBytes; at < n_bytes; at += kStepBytes) {
    a = fold(a, by_step, load(bytes + at));
    b = fold(b, by_step, load(bytes + at + kRegisterBytes));
    c = fold(c, by_step, load(bytes + at + 2 * kRegisterBytes));
    e = fold(e, by_step, load(bytes + at + 3 * kRegisterBytes));
  }
  const V by_register = hn::LoadU(d, kByRegister.data());
  const V all = fold(fold(fold(a, by_register, b), by_register, c), by_register, e);
  Register last;
  const hn::Repartition<std::uint8_t, D> d8;
  hn::StoreU(hn::BitCast(d8, all), d8, last.data());
  return last;
}

Fold choose_fold() {
  return fold_steps;
}

#else

Fold choose_fold() {
  return nullptr;
}

#endif

}  // namespace
}  // namespace unisono::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <zlib.h>

#include <span>

#include "unisono/kernels/dispatch.h"

namespace unisono::kernels {
namespace {

std::uint32_t zlib_crc32(std::uint32_t seed, const std::uint8_t* bytes, std::size_t n_bytes) {
  return static_cast<std::uint32_t>(::crc32_z(seed, bytes, n_bytes));
}

}  // namespace

std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t seed) {
  static const Fold kFold = UNISONO_DISPATCH(choose_fold)();
  const auto* const begin = reinterpret_cast<const std::uint8_t*>(bytes.data());
  std::size_t n_folded = 0;
  if (kFold != nullptr && bytes.size() >= kStepBytes) {
    n_folded = bytes.size() - bytes.size() % kStepBytes;
    // A CRC is the complement of the register; the 16 bytes already include the seed's register.
    const Register last = kFold(begin, n_folded, ~seed);
    seed = zlib_crc32(~std::uint32_t{0}, last.data(), last.size());
  }
  // zlib must not be called with a null pointer, which requests the initial seed.
  return n_folded == bytes.size() ? seed
                                  : zlib_crc32(seed, begin + n_folded, bytes.size() - n_folded);
}

}  // namespace unisono::kernels
#endif  // HWY_ONCE
