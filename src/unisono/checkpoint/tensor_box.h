#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::checkpoint {

/// The element type of a stored tensor: a name and a width, because checkpoints do not compute with
/// elements. Every type of the safetensors format and every DType is an element type. A value type.
class ElementType {
 public:
  /// Implicit, because each DType is an element type.
  ElementType(DType dtype = DType::kFloat32) noexcept;  // NOLINT(google-explicit-constructor)

  /// Returns the type with this name in the safetensors format, e.g. "F8_E4M3"; std::nullopt for
  /// other names.
  [[nodiscard]] static std::optional<ElementType> named(std::string_view name) noexcept;

  /// Returns the names of all types of the format.
  [[nodiscard]] static std::vector<std::string_view> names();

  /// Returns the name in the format; empty for complex128, which the format lacks.
  [[nodiscard]] std::string_view name() const;

  /// Returns the width of an element in bits. Elements of 4 or 6 bits are packed without gaps.
  [[nodiscard]] int n_bits() const;

  /// Returns the corresponding DType; std::nullopt for types that no operation supports.
  [[nodiscard]] std::optional<DType> dtype() const;

  friend bool operator==(const ElementType&, const ElementType&) = default;

 private:
  explicit ElementType(std::uint8_t index) noexcept : index_(index) {}

  std::uint8_t index_;  // Index of a row in the table of types.
};

/// Returns the short name that messages print: "f32", "f8_e4m3".
[[nodiscard]] std::string to_string(ElementType type);

/// Description of a complete tensor. Its elements are stored in row-major order.
struct TensorInfo {
  std::string name;
  ElementType dtype;
  std::vector<std::int64_t> shape;  ///< Empty for a single number.

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

/// A part of a tensor: `sizes` elements from `offsets` along each axis.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;

  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// Returns the box of a complete tensor.
[[nodiscard]] Box whole_box(const std::vector<std::int64_t>& shape);

/// Returns the number of elements; std::nullopt if a size is negative or the number exceeds 2^62.
[[nodiscard]] std::optional<std::int64_t> count_elements(const std::vector<std::int64_t>& sizes);

/// Returns the size of the elements in bytes; std::nullopt if count_elements() fails, if the number
/// of bits exceeds 2^62, or if elements of 4 or 6 bits do not fill complete bytes.
[[nodiscard]] std::optional<std::uint64_t> count_bytes(ElementType dtype,
                                                       const std::vector<std::int64_t>& sizes);

/// Returns true if the box has the same number of axes as the shape and is inside it.
[[nodiscard]] bool is_within(const Box& box, const std::vector<std::int64_t>& shape);

/// Returns the intersection of two boxes with the same number of axes; std::nullopt if it is empty.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

/// Returns a text for messages, such as "f32[4, 3]".
[[nodiscard]] std::string describe(ElementType dtype, const std::vector<std::int64_t>& shape);

/// Returns a text for messages, such as "[0:4, 1:3]".
[[nodiscard]] std::string describe(const Box& box);

/// Returns rows `rank * n / world_size` to `(rank + 1) * n / world_size` of the shape's n rows,
/// with all columns: the part of a rank in a tensor that is sharded by rows. A single number
/// belongs to rank 0.
///
/// Throws Error(kInvalidArgument) unless 0 <= rank < world_size.
[[nodiscard]] Box rows_of_rank(const std::vector<std::int64_t>& shape, int rank, int world_size);

}  // namespace unisono::checkpoint
