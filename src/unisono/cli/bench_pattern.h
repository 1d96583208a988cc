#pragma once

#include <cstdint>
#include <functional>

#include "unisono/base/buffer.h"

namespace unisono::cli::bench {

/// What the ranks' buffers hold in a check: small integers, so that every dtype has exact results.
///
/// Complex elements count as two scalars each.
class Pattern {
 public:
  /// `adds_up`: the ranks' values are summed, so they are small enough for the sum of any number of
  /// ranks to be exact. Patterns of different seeds differ.
  Pattern(int world_size, bool adds_up, std::uint64_t seed)
      : world_size_(world_size), adds_up_(adds_up), seed_(seed) {}

  /// What a rank has at a scalar's index.
  [[nodiscard]] int value(int rank, std::int64_t index) const;

  /// The sum over all ranks.
  [[nodiscard]] int sum(std::int64_t index) const;

 private:
  int world_size_;
  bool adds_up_;
  std::uint64_t seed_;
};

/// The scalar that must be at an index; never above 127.
using ExpectedScalar = std::function<int(std::int64_t index)>;

/// Writes every scalar of the buffer. In bool everything but 0 is true.
void fill(const Buffer& buffer, const ExpectedScalar& expected);

/// Writes what fill() never does, so that elements nobody wrote are found.
void poison(const Buffer& buffer);

/// Elements that differ from what fill() would write, in any bit.
[[nodiscard]] std::int64_t count_wrong(const Buffer& buffer, const ExpectedScalar& expected);

}  // namespace unisono::cli::bench
