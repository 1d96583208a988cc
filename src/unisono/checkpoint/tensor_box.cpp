#include "unisono/checkpoint/tensor_box.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "unisono/base/error.h"

namespace unisono::checkpoint {
namespace {

struct TypeRow {
  std::string_view name;
  int n_bits;
  std::optional<DType> dtype;
};

// The names are from the package safetensors, version 0.8.
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

// Returns the index of the first row with this property; the number of rows if no row has the
// property.
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
    // A subtraction, because the sum of numbers from a file may overflow.
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
    // A box without axes is never empty, so the caller must omit a single number on the other
    // ranks.
    return {};
  }
  // Avoids the product n * rank, which may overflow.
  const auto begin_of = [&](std::int64_t part) {
    return shape[0] / world_size * part + shape[0] % world_size * part / world_size;
  };
  Box rows = whole_box(shape);
  rows.offsets[0] = begin_of(rank);
  rows.sizes[0] = begin_of(rank + 1) - begin_of(rank);
  return rows;
}

}  // namespace unisono::checkpoint
