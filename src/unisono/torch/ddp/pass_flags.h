#pragma once

#include <cstdint>

#include <ATen/core/Tensor.h>

namespace unisono::ddp {

/// One word of flags from each rank in each synchronized pass. All ranks receive the bitwise OR of
/// the words.
using PassFlags = std::uint64_t;

/// The rank's backward pass ended with an exception. The other bits belong to features.
inline constexpr PassFlags kGivenUp = 1;

/// Bits of the word that are in use. The word travels behind the gradients of the last bucket, one
/// element per bit, so that it costs no operation of its own: between nodes another operation costs
/// a round trip.
inline constexpr int kFlagBits = 48;

/// Writes the word into kFlagBits elements of any gradient type, which the ranks then add or
/// average.
void write_flags(const at::Tensor& elements, PassFlags flags);

/// Returns the OR of all ranks' words from their sum or mean.
[[nodiscard]] PassFlags read_flags(const at::Tensor& elements);

}  // namespace unisono::ddp
