#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono::cli::bench {

/// Memory of the buffers of a benchmark.
enum class Memory {
  kPrivate,   ///< Memory of the rank's own heap.
  kSymmetric  ///< From ProcessGroup::allocate().
};

inline constexpr std::array kMemories{Memory::kPrivate, Memory::kSymmetric};

/// Returns "private" or "symmetric".
[[nodiscard]] const char* to_string(Memory memory) noexcept;

// Parsers of the command line. Each throws Error(kInvalidArgument) with the allowed values.

/// Parses numbers of bytes: "8,1K,3M" (K, M, G are powers of 1024). "8:64M:x4" means 8 times powers
/// of 4 up to 64M, "8:64M" all powers of 2.
[[nodiscard]] std::vector<std::int64_t> parse_sizes(const std::string& text);

/// Parses "f32", "bf16", "i8", ...
[[nodiscard]] DType parse_dtype(const std::string& text);

/// Parses "private" or "symmetric".
[[nodiscard]] Memory parse_memory(const std::string& text);

/// Parses "auto", "one_shot", ...
[[nodiscard]] Algorithm parse_algorithm(const std::string& text);

}  // namespace unisono::cli::bench
