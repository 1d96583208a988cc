#pragma once

#include <cstdint>
#include <string_view>

namespace unisono {

/// FNV-1a: the same on every machine, unlike std::hash; for names and ids, not against attackers.
inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325;

/// Takes one more value, a byte as the published function has it, into the hash.
[[nodiscard]] constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

/// Of a text's bytes.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = kFnvStart;
  for (const char byte : text) {
    hash = fnv_step(hash, static_cast<unsigned char>(byte));
  }
  return hash;
}

}  // namespace unisono
