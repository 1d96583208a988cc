#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::kernels {

/// The CRC-32 of zip files of `bytes`, which follow others whose CRC-32 is `seed`. zlib's crc32()
/// is the reference; this one is several times as fast on x86 CPUs that multiply without carries.
[[nodiscard]] std::uint32_t crc32(std::span<const std::byte> bytes, std::uint32_t seed = 0);

}  // namespace unisono::kernels
