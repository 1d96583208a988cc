#pragma once

#include <cstdint>

namespace unisono {

/// How two elements become one. The values travel in descriptors: append only.
enum class ReduceKind : std::uint8_t {
  kSum,
  kAvg,
  kProduct,
  kMin,
  kMax,
  kBand,
  kBor,
  kBxor,
  kPremulSum
};

inline constexpr int kReduceKindCount = 9;

/// "sum", "avg", ... as in messages.
[[nodiscard]] const char* to_string(ReduceKind kind) noexcept;

}  // namespace unisono
