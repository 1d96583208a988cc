#include "unisono/cli/bench_pattern.h"

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>

namespace unisono::cli::bench {
namespace {

// A sum has at most kSummands values other than 0, each below kSummedValues, so that it fits into
// every dtype and is exact in bf16.
constexpr int kSummands = 32;
constexpr std::uint64_t kSummedValues = 4;
constexpr std::uint64_t kCopiedValues = 97;

// The finalizer of SplitMix64: neighbouring numbers give unrelated results.
std::uint64_t mix(std::uint64_t number) {
  number = (number ^ (number >> 30U)) * 0xBF58476D1CE4E5B9U;
  number = (number ^ (number >> 27U)) * 0x94D049BB133111EBU;
  return number ^ (number >> 31U);
}

std::uint16_t f16_bits(int value) {
  if (value == 0) {
    return 0;
  }
  const auto magnitude = static_cast<unsigned>(value);
  const auto exponent = static_cast<unsigned>(std::bit_width(magnitude)) - 1;
  return static_cast<std::uint16_t>(((exponent + 15U) << 10U) |
                                    ((magnitude << (10U - exponent)) & 0x3FFU));
}

// The upper half of the f32; the lower half is 0 for small integers.
std::uint16_t bf16_bits(int value) {
  return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(static_cast<float>(value)) >> 16U);
}

// The bytes of a scalar in memory.
struct ScalarBytes {
  std::array<std::byte, 8> bytes{};
  std::size_t n_bytes = 0;
};

template <class T>
ScalarBytes as_bytes(T value) {
  ScalarBytes scalar;
  scalar.n_bytes = sizeof(T);
  std::memcpy(scalar.bytes.data(), &value, sizeof(T));
  return scalar;
}

ScalarBytes encode(DType dtype, int value) {
  switch (dtype) {
    case DType::kInt8:
    case DType::kUInt8:
      return as_bytes(static_cast<std::uint8_t>(value));
    case DType::kInt16:
    case DType::kUInt16:
      return as_bytes(static_cast<std::uint16_t>(value));
    case DType::kInt32:
    case DType::kUInt32:
      return as_bytes(static_cast<std::uint32_t>(value));
    case DType::kInt64:
    case DType::kUInt64:
      return as_bytes(static_cast<std::uint64_t>(value));
    case DType::kFloat16:
      return as_bytes(f16_bits(value));
    case DType::kBFloat16:
      return as_bytes(bf16_bits(value));
    case DType::kFloat32:
    case DType::kComplex64:
      return as_bytes(static_cast<float>(value));
    case DType::kFloat64:
    case DType::kComplex128:
      return as_bytes(static_cast<double>(value));
    case DType::kBool:
      return as_bytes(static_cast<std::uint8_t>(value != 0));
  }
  return {};
}

std::int64_t scalars_in_element(DType dtype) {
  return dtype == DType::kComplex64 || dtype == DType::kComplex128 ? 2 : 1;
}

}  // namespace

int Pattern::value(int rank, std::int64_t index) const {
  if (adds_up_) {
    const int stride = (world_size_ + kSummands - 1) / kSummands;
    if ((rank + index) % stride != 0) {
      return 0;
    }
  }
  const std::uint64_t random = mix(mix(mix(seed_ + 1) + static_cast<std::uint64_t>(rank)) +
                                   static_cast<std::uint64_t>(index));
  return static_cast<int>(random % (adds_up_ ? kSummedValues : kCopiedValues));
}

int Pattern::sum(std::int64_t index) const {
  int total = 0;
  for (int rank = 0; rank < world_size_; ++rank) {
    total += value(rank, index);
  }
  return total;
}

void fill(const Buffer& buffer, const ExpectedScalar& expected) {
  auto* to = static_cast<std::byte*>(buffer.data);
  const std::int64_t n_scalars = buffer.count * scalars_in_element(buffer.dtype);
  for (std::int64_t index = 0; index < n_scalars; ++index) {
    const ScalarBytes scalar = encode(buffer.dtype, expected(index));
    std::memcpy(to, scalar.bytes.data(), scalar.n_bytes);
    to += scalar.n_bytes;
  }
}

void poison(const Buffer& buffer) {
  constexpr int kAllBits = 0xFF;
  if (buffer.count > 0) {
    std::memset(buffer.data, kAllBits, static_cast<std::size_t>(buffer.n_bytes()));
  }
}

std::int64_t count_wrong(const Buffer& buffer, const ExpectedScalar& expected) {
  const auto* from = static_cast<const std::byte*>(buffer.data);
  const std::int64_t n_scalars = scalars_in_element(buffer.dtype);
  std::int64_t n_wrong = 0;
  for (std::int64_t element = 0; element < buffer.count; ++element) {
    bool is_wrong = false;
    for (std::int64_t scalar = 0; scalar < n_scalars; ++scalar) {
      const ScalarBytes wanted = encode(buffer.dtype, expected(element * n_scalars + scalar));
      is_wrong = is_wrong || std::memcmp(from, wanted.bytes.data(), wanted.n_bytes) != 0;
      from += wanted.n_bytes;
    }
    n_wrong += is_wrong ? 1 : 0;
  }
  return n_wrong;
}

}  // namespace unisono::cli::bench
