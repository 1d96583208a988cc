#include "unisono/torch/tensor/hash.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace unisono {
namespace {

// Odd constants with about half of their bits set: multiplying by them is a bijection that spreads
// each input bit upwards; the rotation and the shifts bring the upper bits back down.
constexpr std::uint64_t kFirst = 0x9e3779b97f4a7c15;
constexpr std::uint64_t kSecond = 0xd6e8feb86659fd93;

std::uint64_t mix(std::uint64_t hash, std::uint64_t word) {
  return std::rotl(hash ^ (word * kFirst), 29) * kSecond;
}

}  // namespace

std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed) {
  std::uint64_t hash = mix(seed, bytes.size());
  while (!bytes.empty()) {
    const std::span<const std::byte> chunk = bytes.first(bytes.size() < 8 ? bytes.size() : 8);
    std::uint64_t word = 0;
    std::memcpy(&word, chunk.data(), chunk.size());
    hash = mix(hash, word);
    bytes = bytes.subspan(chunk.size());
  }
  hash = (hash ^ (hash >> 32)) * kFirst;
  return hash ^ (hash >> 29);
}

}  // namespace unisono
