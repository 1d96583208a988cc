#pragma once

#include <cstddef>
#include <string>

namespace unisono {

/// `n_bytes` random bytes of the kernel, at most 256, in hexadecimal: fit for a secret.
///
/// Throws Error(kSystem) where the kernel has none. Thread-safe.
[[nodiscard]] std::string random_hex(std::size_t n_bytes);

}  // namespace unisono
