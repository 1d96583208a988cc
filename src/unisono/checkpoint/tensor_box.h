#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/checkpoint/element_type.h"

namespace unisono::checkpoint {

/// What is known of a whole tensor. Its elements lie in row-major order.
struct TensorInfo {
  std::string name;
  ElementType dtype;
  std::vector<std::int64_t> shape;  ///< Empty for a single number.

  friend bool operator==(const TensorInfo&, const TensorInfo&) = default;
};

/// A part of a tensor: along each axis `sizes` elements from `offsets` on.
struct Box {
  std::vector<std::int64_t> offsets;
  std::vector<std::int64_t> sizes;

  friend bool operator==(const Box&, const Box&) = default;
  friend auto operator<=>(const Box&, const Box&) = default;
};

/// A tensor of this shape as one box.
[[nodiscard]] Box whole_box(const std::vector<std::int64_t>& shape);

/// Number of elements; nothing when a size is negative or the number exceeds 2^62.
[[nodiscard]] std::optional<std::int64_t> count_elements(const std::vector<std::int64_t>& sizes);

/// Bytes of elements; nothing where count_elements() has nothing, where bits exceed 2^62, and where
/// elements of 4 or 6 bits do not fill whole bytes.
[[nodiscard]] std::optional<std::uint64_t> count_bytes(ElementType dtype,
                                                       const std::vector<std::int64_t>& sizes);

/// Whether the box has as many axes as the shape and ends within it.
[[nodiscard]] bool is_within(const Box& box, const std::vector<std::int64_t>& shape);

/// What two boxes with equally many axes have in common; nothing if that has no element.
[[nodiscard]] std::optional<Box> intersect(const Box& a, const Box& b);

/// For messages: "f32[4, 3]".
[[nodiscard]] std::string describe(ElementType dtype, const std::vector<std::int64_t>& shape);

/// For messages: "[0:4, 1:3]".
[[nodiscard]] std::string describe(const Box& box);

/// Rows `rank * n / world_size` to `(rank + 1) * n / world_size` of the shape's n rows, all
/// columns: what a rank has of a tensor that is split by rows. A single number is rank 0's.
///
/// Throws Error(kInvalidArgument) unless 0 <= rank < world_size.
[[nodiscard]] Box rows_of_rank(const std::vector<std::int64_t>& shape, int rank, int world_size);

}  // namespace unisono::checkpoint
