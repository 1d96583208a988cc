#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string_view>

namespace unisono::net {

inline constexpr std::size_t kNonceBytes = 32;
inline constexpr std::size_t kProofBytes = 32;

using Nonce = std::array<std::byte, kNonceBytes>;
using Proof = std::array<std::byte, kProofBytes>;

/// Unpredictable bytes. Throws Error(kSystem) when the system has none to give.
[[nodiscard]] Nonce make_nonce();

/// HMAC-SHA256 over `message`.
[[nodiscard]] Proof hmac_sha256(std::string_view secret, std::span<const std::byte> message);

/// Compares in a time that does not tell where the two differ.
[[nodiscard]] bool is_equal_secret(std::span<const std::byte> a, std::span<const std::byte> b);

}  // namespace unisono::net
