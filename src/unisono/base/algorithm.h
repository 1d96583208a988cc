#pragma once

#include <cstdint>

namespace unisono {

/// How an operation is carried out. The values travel in descriptors: append only.
enum class Algorithm : std::uint8_t {
  kAuto,     ///< Chosen by size and topology; always the canonical bits.
  kOneShot,  ///< Every rank combines everything: fewest steps, for small buffers.
  kTwoShot   ///< Each rank combines its chunk and hands it to all: least traffic, for large ones.
};

/// "auto", "one_shot", ... as in messages.
[[nodiscard]] const char* to_string(Algorithm algorithm) noexcept;

}  // namespace unisono
