#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono {

/// A 64-bit hash of the bytes: equal bytes, equal hash. Different bytes by accident have equal
/// hashes once in 2^64; an attacker can make them. `seed` chains calls.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const std::byte> bytes, std::uint64_t seed = 0);

}  // namespace unisono
