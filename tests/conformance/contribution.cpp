// Contributions of ranks: numbers of any kind, for reductions of a backend with the canonical
// tree's bits and for tests with a bound on the deviation from these bits.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

#include "unisono/base/buffer.h"

#include "reference.h"

namespace unisono::test {
namespace {

template <class T>
void fill(std::vector<std::byte>& bytes, std::mt19937& random, double scale) {
  for (std::size_t at = 0; at < bytes.size(); at += sizeof(T)) {
    const double number = (static_cast<double>(random()) / 4294967296.0 - 0.5) * scale;
    const T value = static_cast<T>(number);
    std::memcpy(bytes.data() + at, &value, sizeof(T));
  }
}

// Keeps the exponent small, so that sums of a few numbers stay finite. Works for f16 and bf16.
void fill_half(std::vector<std::byte>& bytes, std::mt19937& random) {
  for (std::size_t at = 0; at < bytes.size(); at += 2) {
    const auto value = static_cast<std::uint16_t>(random() & 0xBBFFU);
    std::memcpy(bytes.data() + at, &value, sizeof(value));
  }
}

}  // namespace

std::vector<std::byte> contribution(DType dtype, std::int64_t count, int rank, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  switch (dtype) {
    case DType::kFloat32:
    case DType::kComplex64:
      fill<float>(bytes, random, 100);
      break;
    case DType::kFloat64:
    case DType::kComplex128:
      fill<double>(bytes, random, 100);
      break;
    case DType::kFloat16:
    case DType::kBFloat16:
      fill_half(bytes, random);
      break;
    case DType::kBool:
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(random() % 2);
      }
      break;
    default:
      for (std::byte& byte : bytes) {
        byte = static_cast<std::byte>(random());
      }
  }
  return bytes;
}

}  // namespace unisono::test
