#pragma once

#include <cstdint>
#include <string_view>

namespace unisono::report {

/// The check sum of iSCSI, of Castagnoli's polynomial; zlib's crc32() is of another.
///
/// Source: RFC 3720, appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

}  // namespace unisono::report
