#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "unisono/engine/operation.h"

namespace unisono::engine {

/// Makes one operation of many small ones: what they read is put together, and what comes out is
/// taken apart.
class Coalescing {
 public:
  [[nodiscard]] static bool is_coalesced(const Operation& operation);

  /// The operation on memory of this object, which is read already. It keeps its descriptor.
  [[nodiscard]] Operation pack(const Operation& operation, int world_size);

  /// Hands out what `packed` has left in that memory, and lets go of the memory if it is large.
  void unpack(const Operation& packed, const Operation& operation);

 private:
  static void hand_out(const Operation& packed, const Operation& operation);
  [[nodiscard]] Buffer take(const Operation& operation, std::int64_t begin, std::int64_t count);

  std::vector<std::byte> memory_;
};

}  // namespace unisono::engine
