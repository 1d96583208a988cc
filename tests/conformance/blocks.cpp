#include "blocks.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::test {

std::vector<std::byte> bytes_of(const Buffer& buffer) {
  const auto* const data = static_cast<const std::byte*>(buffer.data);
  return {data, data + buffer.n_bytes()};
}

TestMemory::TestMemory(ProcessGroup& group, Memory memory, std::int64_t count, DType dtype) {
  if (memory == Memory::kSymmetric) {
    buffer_ = group.allocate(count, dtype);
  } else {
    bytes_.resize(static_cast<std::size_t>(count) * size_of(dtype));
    buffer_ = {.data = bytes_.data(), .count = count, .dtype = dtype};
  }
}

TestMemory::TestMemory(ProcessGroup& group,
                       Memory memory,
                       DType dtype,
                       const std::vector<std::byte>& bytes)
    : TestMemory(group, memory, static_cast<std::int64_t>(bytes.size() / size_of(dtype)), dtype) {
  std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(buffer_.data));
}

std::vector<std::int64_t> uneven_counts(int world_size, std::int64_t scale, unsigned seed) {
  std::vector<std::int64_t> counts;
  for (int rank = 0; rank < world_size; ++rank) {
    counts.push_back((rank + static_cast<std::int64_t>(seed)) % 3 * scale +
                     (seed % 2 == 0 ? rank + 1 : 0));
  }
  return counts;
}

std::vector<Buffer> cut(const Buffer& whole, const std::vector<std::int64_t>& counts) {
  std::vector<Buffer> parts;
  auto* data = static_cast<std::byte*>(whole.data);
  for (const std::int64_t count : counts) {
    parts.push_back({.data = data, .count = count, .dtype = whole.dtype});
    data += parts.back().n_bytes();
  }
  return parts;
}

std::int64_t sum(const std::vector<std::int64_t>& counts) {
  return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
}

std::vector<std::byte> join(const std::vector<std::vector<std::byte>>& parts) {
  std::vector<std::byte> whole;
  for (const std::vector<std::byte>& part : parts) {
    whole.insert(whole.end(), part.begin(), part.end());
  }
  return whole;
}

}  // namespace unisono::test
