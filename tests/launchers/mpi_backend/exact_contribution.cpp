// Small integers, for which no reduction rounds or overflows. So the order in which an MPI combines
// elements does not change any bit.
#include <complex>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <vector>

#include "unisono/base/buffer.h"

#include "conformance/reference.h"

namespace unisono::test {
namespace {

template <class T>
void put(std::byte* at, T value) {
  std::memcpy(at, &value, sizeof(T));
}

// `number` is 0 to 3.
void put_number(std::byte* at, DType dtype, int number) {
  switch (dtype) {
    case DType::kFloat32:
      return put(at, static_cast<float>(number));
    case DType::kFloat64:
      return put(at, static_cast<double>(number));
    case DType::kComplex64:
      return put(at, std::complex<float>(1.0F, static_cast<float>(number)));
    case DType::kComplex128:
      return put(at, std::complex<double>(1.0, number));
    case DType::kBool:
      return put(at, number % 2 != 0);
    case DType::kFloat16:
    case DType::kBFloat16:
      throw std::invalid_argument("an MPI reduces no 16-bit floats");
    default:
      // Integers are little-endian.
      *at = static_cast<std::byte>(number);
  }
}

}  // namespace

std::vector<std::byte> contribution(DType dtype, std::int64_t count, int rank, unsigned seed) {
  std::mt19937 random(seed * 1000 + static_cast<unsigned>(rank));
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(dtype));
  for (std::size_t at = 0; at < bytes.size(); at += size_of(dtype)) {
    put_number(bytes.data() + at, dtype, static_cast<int>(random() % 4));
  }
  return bytes;
}

}  // namespace unisono::test
