#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"

namespace unisono::test {

/// Kind of memory of a test's buffers.
enum class Memory { kPrivate, kSymmetric };

/// Returns the content of the buffer.
[[nodiscard]] std::vector<std::byte> bytes_of(const Buffer& buffer);

/// Private or symmetric memory for `count` elements.
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

/// Returns a count for each rank of a world. The counts differ by rank; for odd seeds some are 0.
[[nodiscard]] std::vector<std::int64_t> uneven_counts(int world_size,
                                                      std::int64_t scale,
                                                      unsigned seed);

/// Cuts `whole` into parts of these counts.
[[nodiscard]] std::vector<Buffer> cut(const Buffer& whole, const std::vector<std::int64_t>& counts);

[[nodiscard]] std::int64_t sum(const std::vector<std::int64_t>& counts);

/// Returns the concatenation of `parts`.
[[nodiscard]] std::vector<std::byte> join(const std::vector<std::vector<std::byte>>& parts);

}  // namespace unisono::test
