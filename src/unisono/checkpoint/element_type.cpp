#include "unisono/checkpoint/element_type.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono::checkpoint {
namespace {

struct TypeRow {
  std::string_view name;
  int n_bits;
  std::optional<DType> dtype;
};

// The names are those of the package safetensors, version 0.8.
constexpr std::array kTypeRows{TypeRow{"BOOL", 8, DType::kBool},
                               TypeRow{"F4", 4, {}},
                               TypeRow{"F6_E2M3", 6, {}},
                               TypeRow{"F6_E3M2", 6, {}},
                               TypeRow{"U8", 8, DType::kUInt8},
                               TypeRow{"I8", 8, DType::kInt8},
                               TypeRow{"F8_E5M2", 8, {}},
                               TypeRow{"F8_E4M3", 8, {}},
                               TypeRow{"F8_E8M0", 8, {}},
                               TypeRow{"F8_E4M3FNUZ", 8, {}},
                               TypeRow{"F8_E5M2FNUZ", 8, {}},
                               TypeRow{"I16", 16, DType::kInt16},
                               TypeRow{"U16", 16, DType::kUInt16},
                               TypeRow{"F16", 16, DType::kFloat16},
                               TypeRow{"BF16", 16, DType::kBFloat16},
                               TypeRow{"I32", 32, DType::kInt32},
                               TypeRow{"U32", 32, DType::kUInt32},
                               TypeRow{"F32", 32, DType::kFloat32},
                               TypeRow{"C64", 64, DType::kComplex64},
                               TypeRow{"F64", 64, DType::kFloat64},
                               TypeRow{"I64", 64, DType::kInt64},
                               TypeRow{"U64", 64, DType::kUInt64},
                               TypeRow{"", 128, DType::kComplex128}};

// The index of the first row with this property; the number of rows without any.
template <class Property>
std::uint8_t row_with(const Property& property) {
  return static_cast<std::uint8_t>(std::ranges::find_if(kTypeRows, property) - kTypeRows.begin());
}

}  // namespace

ElementType::ElementType(DType dtype) noexcept
    : index_(row_with([&](const TypeRow& row) { return row.dtype == dtype; })) {}

std::optional<ElementType> ElementType::named(std::string_view name) noexcept {
  const std::uint8_t index =
      row_with([&](const TypeRow& row) { return !name.empty() && row.name == name; });
  return index < kTypeRows.size() ? std::optional(ElementType(index)) : std::nullopt;
}

std::vector<std::string_view> ElementType::names() {
  std::vector<std::string_view> names;
  for (const TypeRow& row : kTypeRows) {
    if (!row.name.empty()) {
      names.push_back(row.name);
    }
  }
  return names;
}

std::string_view ElementType::name() const {
  return kTypeRows.at(index_).name;
}

int ElementType::n_bits() const {
  return kTypeRows.at(index_).n_bits;
}

std::optional<DType> ElementType::dtype() const {
  return kTypeRows.at(index_).dtype;
}

std::string to_string(ElementType type) {
  if (const std::optional<DType> dtype = type.dtype()) {
    return to_string(*dtype);
  }
  std::string text(type.name());
  std::ranges::transform(text, text.begin(), [](char letter) {
    return letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  });
  return text;
}

}  // namespace unisono::checkpoint
