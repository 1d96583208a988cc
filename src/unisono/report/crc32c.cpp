#include "unisono/report/crc32c.h"

#include <array>
#include <cstdint>
#include <string_view>

namespace unisono::report {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // The low bit stands for the highest power.
constexpr std::uint32_t kByte = 0xFF;

constexpr std::array<std::uint32_t, 256> kSumOfByte = [] {
  std::array<std::uint32_t, 256> sums{};
  for (std::uint32_t byte = 0; byte < sums.size(); ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) {
      sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? kPolynomial : 0);
    }
    sums.at(byte) = sum;
  }
  return sums;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (const char byte : bytes) {
    sum = (sum >> 8U) ^ kSumOfByte[(sum ^ static_cast<unsigned char>(byte)) & kByte];
  }
  return ~sum;
}

}  // namespace unisono::report
