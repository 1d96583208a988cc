#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/dtype.h"

namespace unisono::checkpoint {

/// The type of a stored tensor's elements: a name and a width, because nothing is computed with
/// them. Every type of the safetensors format and every DType is one.
class ElementType {
 public:
  /// Implicit, because each DType is an element type.
  ElementType(DType dtype = DType::kFloat32) noexcept;  // NOLINT(google-explicit-constructor)

  /// The type of this name in the safetensors format, e.g. "F8_E4M3"; nothing for other names.
  [[nodiscard]] static std::optional<ElementType> named(std::string_view name) noexcept;

  /// The names of all types of the format.
  [[nodiscard]] static std::vector<std::string_view> names();

  /// The name in the format; empty for the type that the format lacks, complex128.
  [[nodiscard]] std::string_view name() const;

  /// Width of one element. Elements of 4 or 6 bits lie without gaps between them.
  [[nodiscard]] int n_bits() const;

  /// The type as that of a buffer; nothing for types that no operation computes with.
  [[nodiscard]] std::optional<DType> dtype() const;

  friend bool operator==(const ElementType&, const ElementType&) = default;

 private:
  explicit ElementType(std::uint8_t index) noexcept : index_(index) {}

  std::uint8_t index_;  // Of a row in the table of types.
};

/// Short name as in messages: "f32", "f8_e4m3".
[[nodiscard]] std::string to_string(ElementType type);

}  // namespace unisono::checkpoint
