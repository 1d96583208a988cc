#pragma once

#include <span>
#include <vector>

#include "unisono/base/buffer.h"

namespace unisono::comm {

/// A block for each rank as a call takes them: in one buffer, one after the other, or in a list.
/// Refers to what it is made of, for the time of a call.
struct Blocks {
  // NOLINTBEGIN(google-explicit-constructor): callers pass either.
  Blocks(const Buffer& buffer) : whole(&buffer) {}

  Blocks(std::span<const Buffer> buffers) : list(buffers) {}

  Blocks(const std::vector<Buffer>& buffers) : list(buffers) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_list() const { return whole == nullptr; }

  const Buffer* whole = nullptr;
  std::span<const Buffer> list;
};

}  // namespace unisono::comm
