#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::test {

/// Where a test's buffers lie.
enum class Memory { kPrivate, kSymmetric };

/// What the buffer holds.
[[nodiscard]] std::vector<std::byte> bytes_of(const Buffer& buffer);

/// Memory for `count` elements, of either kind.
class TestMemory {
 public:
  TestMemory(ProcessGroup& group, Memory memory, std::int64_t count, DType dtype);

  TestMemory(ProcessGroup& group, Memory memory, DType dtype, const std::vector<std::byte>& bytes);

  [[nodiscard]] const Buffer& buffer() const { return buffer_; }

  [[nodiscard]] std::vector<std::byte> bytes() const { return bytes_of(buffer_); }

 private:
  std::vector<std::byte> bytes_;
  Buffer buffer_;
};

/// Counts for the ranks of a world that differ by rank, some of them 0 for odd seeds.
[[nodiscard]] std::vector<std::int64_t> uneven_counts(int world_size,
                                                      std::int64_t scale,
                                                      unsigned seed);

/// Cuts `whole` into parts of these counts.
[[nodiscard]] std::vector<Buffer> cut(const Buffer& whole, const std::vector<std::int64_t>& counts);

[[nodiscard]] std::int64_t sum(const std::vector<std::int64_t>& counts);

/// The concatenation of `parts`.
[[nodiscard]] std::vector<std::byte> join(const std::vector<std::vector<std::byte>>& parts);

}  // namespace unisono::test
