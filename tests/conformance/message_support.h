#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"

#include "support/ranks.h"

namespace unisono::test {

/// Returns bytes that identify the sender, the receiver and the number of the message.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t n_bytes, int from, int to, int number);

[[nodiscard]] Buffer as_bytes_buffer(std::vector<std::byte>& bytes);

[[nodiscard]] Buffer of_dtype(std::vector<std::byte>& bytes, DType dtype);

/// Layouts of four ranks: one node, a node for each rank, and intermediate layouts.
[[nodiscard]] std::vector<World> message_layouts();

}  // namespace unisono::test
