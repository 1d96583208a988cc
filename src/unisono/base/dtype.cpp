#include "unisono/base/dtype.h"

#include <array>
#include <cstddef>

namespace unisono {
namespace {

struct Row {
  std::size_t size;
  const char* name;
};

constexpr std::array<Row, kDTypeCount> kRows{{
    {1, "i8"},
    {1, "u8"},
    {2, "i16"},
    {2, "u16"},
    {4, "i32"},
    {4, "u32"},
    {8, "i64"},
    {8, "u64"},
    {2, "f16"},
    {2, "bf16"},
    {4, "f32"},
    {8, "f64"},
    {8, "c64"},
    {16, "c128"},
    {1, "bool"},
}};

}  // namespace

std::size_t size_of(DType dtype) noexcept {
  return kRows[static_cast<std::size_t>(dtype)].size;
}

const char* to_string(DType dtype) noexcept {
  const auto index = static_cast<std::size_t>(dtype);
  // A descriptor from a peer can hold any byte, and messages must still be made of it.
  return index < kRows.size() ? kRows[index].name : "unknown dtype";
}

DType accumulate_dtype(DType dtype) noexcept {
  const bool is_16_bit = dtype == DType::kFloat16 || dtype == DType::kBFloat16;
  return is_16_bit ? DType::kFloat32 : dtype;
}

}  // namespace unisono
