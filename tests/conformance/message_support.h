#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/dtype.h"

#include "support/ranks.h"

namespace unisono::test {

/// Bytes that tell by whom, to whom, and as the how many-th they were sent.
[[nodiscard]] std::vector<std::byte> pattern(std::size_t n_bytes, int from, int to, int number);

[[nodiscard]] Buffer as_bytes_buffer(std::vector<std::byte>& bytes);

[[nodiscard]] Buffer of_dtype(std::vector<std::byte>& bytes, DType dtype);

/// Worlds of four ranks: on one node, each on its own, and in between.
[[nodiscard]] std::vector<World> message_layouts();

}  // namespace unisono::test
