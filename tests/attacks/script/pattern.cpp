#include "attacks/script/pattern.h"

#include <algorithm>
#include <span>
#include <stdexcept>

#include "unisono/base/buffer.h"

namespace unisono::attacks {
namespace {

int combine(int lhs, int rhs, ReduceKind kind) {
  switch (kind) {
    case ReduceKind::kSum:
      return lhs + rhs;
    case ReduceKind::kMin:
      return std::min(lhs, rhs);
    case ReduceKind::kMax:
      return std::max(lhs, rhs);
    default:
      throw std::invalid_argument("a script's reductions are sum, min and max");
  }
}

template <class T, class Function>
bool all_of_type(const Buffer& buffer, std::int64_t first, const Function& function) {
  const std::span elements(static_cast<T*>(buffer.data), static_cast<std::size_t>(buffer.count));
  auto place = static_cast<std::size_t>(first) % Pattern().size();
  for (T& element : elements) {
    if (!function(element, place)) {
      return false;
    }
    place = place + 1 == Pattern().size() ? 0 : place + 1;
  }
  return true;
}

// Returns true if `function` is true for each element and its index in the pattern. Stops at the
// first failure.
template <class Function>
bool all_of(const Buffer& buffer, std::int64_t first, const Function& function) {
  switch (buffer.dtype) {
    case DType::kInt8:
      return all_of_type<std::int8_t>(buffer, first, function);
    case DType::kUInt8:
      return all_of_type<std::uint8_t>(buffer, first, function);
    case DType::kInt32:
      return all_of_type<std::int32_t>(buffer, first, function);
    case DType::kInt64:
      return all_of_type<std::int64_t>(buffer, first, function);
    case DType::kFloat32:
      return all_of_type<float>(buffer, first, function);
    case DType::kFloat64:
      return all_of_type<double>(buffer, first, function);
    default:
      throw std::invalid_argument("no dtype of scripts");
  }
}

}  // namespace

Pattern pattern_of(int step, int rank, int block) {
  constexpr int kValues = 7;
  Pattern pattern{};
  for (std::size_t place = 0; place < pattern.size(); ++place) {
    const std::size_t shift = 17U * static_cast<std::size_t>(step) +
                              31U * static_cast<std::size_t>(rank) +
                              59U * static_cast<std::size_t>(block);
    pattern[place] = static_cast<int>((place + shift) % pattern.size()) % kValues;
  }
  return pattern;
}

Pattern combined_pattern(int step, int world_size, ReduceKind kind) {
  Pattern result = pattern_of(step, 0);
  for (int rank = 1; rank < world_size; ++rank) {
    const Pattern other = pattern_of(step, rank);
    for (std::size_t place = 0; place < result.size(); ++place) {
      result[place] = combine(result[place], other[place], kind);
    }
  }
  return result;
}

void fill(const Buffer& buffer, const Pattern& pattern, std::int64_t first) {
  (void)all_of(buffer, first, [&](auto& element, std::size_t place) {
    element = static_cast<std::remove_reference_t<decltype(element)>>(pattern[place]);
    return true;
  });
}

bool holds(const Buffer& buffer, const Pattern& pattern, std::int64_t first) {
  return all_of(buffer, first, [&](const auto& element, std::size_t place) {
    return element == static_cast<std::remove_cvref_t<decltype(element)>>(pattern[place]);
  });
}

Buffer part_of(const Buffer& buffer, std::int64_t first, std::int64_t count) {
  Buffer part = buffer;
  part.data = static_cast<std::byte*>(buffer.data) +
              first * static_cast<std::int64_t>(size_of(buffer.dtype));
  part.count = count;
  return part;
}

}  // namespace unisono::attacks
