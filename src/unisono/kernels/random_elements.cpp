#include "unisono/kernels/random_elements.h"

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <limits>
#include <optional>
#include <random>

#include "unisono/base/dtype.h"
#include "unisono/kernels/float16.h"
#include "unisono/kernels/test_support.h"

namespace unisono::kernels {
namespace {

// The type whose NaNs matter in elements of dtype.
DType part_of(DType dtype) {
  switch (dtype) {
    case DType::kComplex64:
      return DType::kFloat32;
    case DType::kComplex128:
      return DType::kFloat64;
    default:
      return dtype;
  }
}

template <class T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

template <class T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}

template <class T>
T special_float(Random& random) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {T(0),
                      T(-0.0),
                      T(1),
                      T(-1),
                      T(1) + Limits::epsilon(),
                      Limits::infinity(),
                      -Limits::infinity(),
                      Limits::quiet_NaN(),
                      Limits::max(),
                      Limits::min(),
                      Limits::denorm_min(),
                      -3 * Limits::denorm_min(),
                      T(65504),
                      T(65519),
                      T(0x1p-24),
                      T(0x1p-25)};
  return values[pick(random, 0, std::size(values) - 1)];
}

constexpr std::uint16_t kSpecialHalves[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x0400, 0x3C00,
                                            0x7BFF, 0x7C00, 0xFC00, 0x7E00, 0x7F80, 0x7FFF, 0xFFFF,
                                            0x7F7F, 0x0080, 0x007F, 0x3F80, 0x4300, 0x6800};

void put_random_part(std::byte* to, DType dtype, Random& random) {
  const std::size_t size = size_of(dtype);
  const std::uint64_t bits = (static_cast<std::uint64_t>(random()) << 32U) | random();
  std::memcpy(to, &bits, size);
  const int choice = pick(random, 0, 7);
  const auto number = static_cast<float>(pick(random, -4096, 4096)) / 64;
  if (dtype == DType::kFloat32 && choice != 0) {
    put(to, choice == 1 ? special_float<float>(random) : number);
  } else if (dtype == DType::kFloat64 && choice != 0) {
    put(to, choice == 1 ? special_float<double>(random) : number / 3.0);
  } else if (dtype == DType::kFloat16 && choice != 0) {
    put(to, choice == 1 ? kSpecialHalves[random() % 20] : f16_from_float(number));
  } else if (dtype == DType::kBFloat16 && choice != 0) {
    put(to, choice == 1 ? kSpecialHalves[random() % 20] : bf16_from_float(number));
  } else if (dtype == DType::kBool && choice > 1) {
    to[0] = static_cast<std::byte>(choice % 2);
  }
}

bool is_nan(const std::byte* element, DType dtype) {
  switch (dtype) {
    case DType::kFloat16:
      return std::isnan(float_from_f16(get<std::uint16_t>(element)));
    case DType::kBFloat16:
      return std::isnan(float_from_bf16(get<std::uint16_t>(element)));
    case DType::kFloat32:
      return std::isnan(get<float>(element));
    case DType::kFloat64:
      return std::isnan(get<double>(element));
    default:
      return false;
  }
}

}  // namespace

int pick(Random& random, int from, int to) {
  return std::uniform_int_distribution<int>(from, to)(random);
}

bool one_in(Random& random, int n) {
  return pick(random, 1, n) == 1;
}

void fill(const OffsetBytes& bytes, std::size_t n_bytes, DType dtype, Random& random) {
  const std::size_t step = size_of(part_of(dtype));
  for (std::size_t at = 0; at < n_bytes; at += step) {
    put_random_part(bytes.data() + at, part_of(dtype), random);
  }
}

std::optional<std::size_t> first_difference(const std::byte* expected,
                                            const std::byte* actual,
                                            std::size_t n_bytes,
                                            DType dtype) {
  if (std::memcmp(expected, actual, n_bytes) == 0) {
    return std::nullopt;
  }
  const std::size_t step = size_of(part_of(dtype));
  for (std::size_t at = 0; at < n_bytes; at += step) {
    const bool are_nan =
        is_nan(expected + at, part_of(dtype)) && is_nan(actual + at, part_of(dtype));
    if (!are_nan && std::memcmp(expected + at, actual + at, step) != 0) {
      return at / step;
    }
  }
  return std::nullopt;
}

}  // namespace unisono::kernels
