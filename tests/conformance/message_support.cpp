#include "conformance/message_support.h"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::test {

std::vector<std::byte> pattern(std::size_t n_bytes, int from, int to, int number) {
  std::vector<std::byte> bytes(n_bytes);
  auto state = static_cast<std::uint32_t>(((from * 31 + to) * 1009 + number) * 2 + 1);
  for (std::byte& byte : bytes) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<std::byte>(state >> 24U);
  }
  return bytes;
}

Buffer as_bytes_buffer(std::vector<std::byte>& bytes) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size()),
          .dtype = DType::kUInt8};
}

Buffer of_dtype(std::vector<std::byte>& bytes, DType dtype) {
  return {.data = bytes.data(),
          .count = static_cast<std::int64_t>(bytes.size() / size_of(dtype)),
          .dtype = dtype};
}

std::vector<World> message_layouts() {
  return {one_node(4),
          {.nodes = {"a", "b", "c", "d"}},
          {.nodes = {"a", "a", "b", "b"}},
          {.nodes = {"a", "b", "a", "b"}}};
}

}  // namespace unisono::test
