#pragma once

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

/// Bytes of one element.
[[nodiscard]] std::size_t size_of(DType dtype) noexcept;

/// Short name as in messages: "f32", "bf16", "c64", "bool", ...
[[nodiscard]] const char* to_string(DType dtype) noexcept;

/// The type in which partial sums are kept and travel: f32 for the 16-bit floats, else the type
/// itself.
[[nodiscard]] DType accumulate_dtype(DType dtype) noexcept;

}  // namespace unisono
