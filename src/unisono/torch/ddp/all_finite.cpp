#include "unisono/torch/ddp/all_finite.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::ddp {
namespace {

// So many are looked at between two decisions.
constexpr std::size_t kBlock = 4096;

template <class Number, class Bits>
bool are_finite(std::span<const Number> numbers, Bits exponent) {
  for (std::size_t start = 0; start < numbers.size(); start += kBlock) {
    const std::span<const Number> block =
        numbers.subspan(start, std::min(kBlock, numbers.size() - start));
    Bits found = 0;
    for (const Number number : block) {
      found |= static_cast<Bits>((std::bit_cast<Bits>(number) & exponent) == exponent);
    }
    if (found != 0) {
      return false;
    }
  }
  return true;
}

}  // namespace

bool are_all_finite(std::span<const std::uint16_t> bits, std::uint16_t exponent) {
  return are_finite(bits, exponent);
}

bool are_all_finite(std::span<const float> numbers) {
  return are_finite(numbers, std::uint32_t{0x7F800000});
}

bool are_all_finite(std::span<const double> numbers) {
  return are_finite(numbers, std::uint64_t{0x7FF0000000000000});
}

}  // namespace unisono::ddp
