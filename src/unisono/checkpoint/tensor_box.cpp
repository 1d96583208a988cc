#include "unisono/checkpoint/tensor_box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/checkpoint/element_type.h"

namespace unisono::checkpoint {
namespace {

constexpr std::int64_t kMostBoxElements = std::int64_t{1} << 62;

}  // namespace

Box whole_box(const std::vector<std::int64_t>& shape) {
  return {.offsets = std::vector<std::int64_t>(shape.size(), 0), .sizes = shape};
}

std::optional<std::int64_t> count_elements(const std::vector<std::int64_t>& sizes) {
  std::int64_t n_elems = 1;
  bool is_empty = false;
  for (const std::int64_t size : sizes) {
    if (size < 0) {
      return std::nullopt;
    }
    if (size == 0) {
      is_empty = true;
    } else if (n_elems > kMostBoxElements / size) {
      return std::nullopt;
    } else {
      n_elems *= size;
    }
  }
  return is_empty ? 0 : n_elems;
}

std::optional<std::uint64_t> count_bytes(ElementType dtype,
                                         const std::vector<std::int64_t>& sizes) {
  const std::optional<std::int64_t> n_elems = count_elements(sizes);
  if (!n_elems || *n_elems > kMostBoxElements / dtype.n_bits() ||
      *n_elems * dtype.n_bits() % 8 != 0) {
    return std::nullopt;
  }
  return static_cast<std::uint64_t>(*n_elems * dtype.n_bits() / 8);
}

bool is_within(const Box& box, const std::vector<std::int64_t>& shape) {
  if (box.offsets.size() != shape.size() || box.sizes.size() != shape.size()) {
    return false;
  }
  for (std::size_t axis = 0; axis < shape.size(); ++axis) {
    // Subtracted, as a sum of numbers from a file may overflow.
    if (box.offsets[axis] < 0 || box.sizes[axis] < 0 || box.offsets[axis] > shape[axis] ||
        box.sizes[axis] > shape[axis] - box.offsets[axis]) {
      return false;
    }
  }
  return true;
}

std::optional<Box> intersect(const Box& a, const Box& b) {
  Box common;
  for (std::size_t axis = 0; axis < a.offsets.size(); ++axis) {
    const std::int64_t begin = std::max(a.offsets[axis], b.offsets[axis]);
    const std::int64_t end =
        std::min(a.offsets[axis] + a.sizes[axis], b.offsets[axis] + b.sizes[axis]);
    if (begin >= end) {
      return std::nullopt;
    }
    common.offsets.push_back(begin);
    common.sizes.push_back(end - begin);
  }
  return common;
}

std::string describe(ElementType dtype, const std::vector<std::int64_t>& shape) {
  return fmt::format("{}[{}]", to_string(dtype), fmt::join(shape, ", "));
}

std::string describe(const Box& box) {
  std::string text;
  for (std::size_t axis = 0; axis < box.offsets.size(); ++axis) {
    text += fmt::format(
        "{}{}:{}", axis == 0 ? "" : ", ", box.offsets[axis], box.offsets[axis] + box.sizes[axis]);
  }
  return "[" + text + "]";
}

Box rows_of_rank(const std::vector<std::int64_t>& shape, int rank, int world_size) {
  if (rank < 0 || rank >= world_size) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("rows_of_rank: rank {} is outside a world of {}", rank, world_size));
  }
  if (shape.empty()) {
    // No box of no axes is empty, so the caller leaves a single number out on the other ranks.
    return {};
  }
  // Without the product n * rank, which may overflow.
  const auto begin_of = [&](std::int64_t part) {
    return shape[0] / world_size * part + shape[0] % world_size * part / world_size;
  };
  Box rows = whole_box(shape);
  rows.offsets[0] = begin_of(rank);
  rows.sizes[0] = begin_of(rank + 1) - begin_of(rank);
  return rows;
}

}  // namespace unisono::checkpoint
