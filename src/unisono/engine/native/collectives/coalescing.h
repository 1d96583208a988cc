#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "unisono/engine/operation.h"

namespace unisono::engine {

/// Packs the buffers of a coalesced operation into one, and unpacks the result.
class Coalescing {
 public:
  /// The operation on memory of this object, which is read already. It keeps its descriptor. Memory
  /// of which one call after the other needs but little is given back.
  [[nodiscard]] Operation pack(const Operation& operation, int world_size);

  /// Hands out what `packed` has left in that memory.
  static void unpack(const Operation& packed, const Operation& operation);

 private:
  void make_room(std::size_t n_bytes);
  [[nodiscard]] Buffer take(const Operation& operation, std::int64_t begin, std::int64_t count);

  std::unique_ptr<std::byte[]> memory_;
  std::size_t n_bytes_ = 0;
  int n_small_calls_ = 0;  // One after the other.
};

}  // namespace unisono::engine
