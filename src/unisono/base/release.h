#pragma once

namespace unisono {

/// The library's version, "1.2.3".
[[nodiscard]] const char* release() noexcept;

}  // namespace unisono
