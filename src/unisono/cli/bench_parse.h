#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"

namespace unisono::cli::bench {

/// Where the buffers of a benchmark lie.
enum class Memory {
  kPrivate,   ///< Each rank's own, as malloc gives it.
  kSymmetric  ///< From ProcessGroup::allocate().
};

inline constexpr std::array kMemories{Memory::kPrivate, Memory::kSymmetric};

/// "private" or "symmetric".
[[nodiscard]] const char* to_string(Memory memory) noexcept;

// What the command line says. Each throws Error(kInvalidArgument) that says what is allowed.

/// Numbers of bytes: "8,1K,3M" (K, M, G are powers of 1024); "8:64M:x4" stands for 8 times powers
/// of 4 up to 64M, "8:64M" for all powers of 2.
[[nodiscard]] std::vector<std::int64_t> parse_sizes(const std::string& text);

/// "f32", "bf16", "i8", ...
[[nodiscard]] DType parse_dtype(const std::string& text);

[[nodiscard]] Memory parse_memory(const std::string& text);

/// "auto", "one_shot", ...
[[nodiscard]] Algorithm parse_algorithm(const std::string& text);

}  // namespace unisono::cli::bench
