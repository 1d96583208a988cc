#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace unisono {

/// Element type of a buffer. The values travel in descriptors: append only.
enum class DType : std::uint8_t {
  kInt8,
  kUInt8,
  kInt16,
  kUInt16,
  kInt32,
  kUInt32,
  kInt64,
  kUInt64,
  kFloat16,
  kBFloat16,
  kFloat32,
  kFloat64,
  kComplex64,
  kComplex128,
  kBool
};

inline constexpr int kDTypeCount = 15;

/// size_of(), by type.
inline constexpr std::array<std::uint8_t, kDTypeCount> kDTypeSizes{
    1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8, 8, 16, 1};

/// Bytes of one element.
[[nodiscard]] constexpr std::size_t size_of(DType dtype) noexcept {
  return kDTypeSizes[static_cast<std::size_t>(dtype)];
}

/// Short name as in messages: "f32", "bf16", "c64", "bool", ...
[[nodiscard]] const char* to_string(DType dtype) noexcept;

/// The type in which partial sums are kept and travel: f32 for the 16-bit floats, else the type
/// itself.
[[nodiscard]] DType accumulate_dtype(DType dtype) noexcept;

}  // namespace unisono
