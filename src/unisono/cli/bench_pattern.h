#pragma once

#include <cstdint>
#include <functional>

#include "unisono/base/buffer.h"

namespace unisono::cli::bench {

/// Contents of the ranks' buffers in a check: small integers, for which every dtype has exact
/// results.
///
/// A complex element counts as two scalars.
class Pattern {
 public:
  /// `adds_up`: the ranks' values are summed, so the values are small enough for an exact sum over
  /// any number of ranks. Different seeds give different patterns.
  Pattern(int world_size, bool adds_up, std::uint64_t seed)
      : world_size_(world_size), adds_up_(adds_up), seed_(seed) {}

  /// Returns the value of a rank at a scalar's index.
  [[nodiscard]] int value(int rank, std::int64_t index) const;

  /// Returns the sum over all ranks.
  [[nodiscard]] int sum(std::int64_t index) const;

 private:
  int world_size_;
  bool adds_up_;
  std::uint64_t seed_;
};

/// Returns the expected scalar at an index; 127 at most.
using ExpectedScalar = std::function<int(std::int64_t index)>;

/// Writes every scalar of the buffer. With bool, all values except 0 are true.
void fill(const Buffer& buffer, const ExpectedScalar& expected);

/// Fills the buffer with bytes that fill() never writes, so that elements without a result are
/// detected.
void poison(const Buffer& buffer);

/// Returns the number of elements that differ in any bit from the elements that fill() would write.
[[nodiscard]] std::int64_t count_wrong(const Buffer& buffer, const ExpectedScalar& expected);

}  // namespace unisono::cli::bench
