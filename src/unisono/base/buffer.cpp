#include "unisono/base/buffer.h"

namespace unisono {
namespace {

constexpr std::array<const char*, kDTypeCount> kNames{"i8",
                                                      "u8",
                                                      "i16",
                                                      "u16",
                                                      "i32",
                                                      "u32",
                                                      "i64",
                                                      "u64",
                                                      "f16",
                                                      "bf16",
                                                      "f32",
                                                      "f64",
                                                      "c64",
                                                      "c128",
                                                      "bool"};

}  // namespace

const char* to_string(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  // A descriptor from a peer can hold any byte, and error messages print that byte's name.
  return index < kNames.size() ? kNames[index] : "unknown dtype";
}

DType accumulate_dtype(DType dtype) noexcept {
  const bool is_16_bit = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_16_bit ? DType::kFloat32 : dtype;
}

}  // namespace unisono
