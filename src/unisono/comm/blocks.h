#pragma once

#include <concepts>
#include <span>

#include "unisono/base/buffer.h"

namespace unisono {

/// A block for each rank: in one buffer, one after the other, or in a list with an entry per rank.
/// Made where a call is given either, and refers to it for the time of the call.
struct Blocks {
  // NOLINTBEGIN(google-explicit-constructor): callers pass either.
  Blocks(const Buffer& buffer) : whole(&buffer) {}

  template <class List>
    requires std::convertible_to<const List&, std::span<const Buffer>>
  Blocks(const List& buffers) : list(buffers) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_list() const { return whole == nullptr; }

  const Buffer* whole = nullptr;
  std::span<const Buffer> list;
  bool is_lent = false;  ///< The caller keeps the memory alive itself: no owner is counted.
};

}  // namespace unisono
