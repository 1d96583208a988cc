#pragma once

#include <cstdint>
#include <memory>

#include "unisono/base/buffer.h"
#include "unisono/transport/shm/arena.h"
#include "unisono/transport/shm/heap.h"

namespace unisono::engine {

/// A rank's arena with the heap in it. Buffers share in it, so it lives as long as the last of
/// them.
class SymmetricMemory : public std::enable_shared_from_this<SymmetricMemory> {
 public:
  explicit SymmetricMemory(std::shared_ptr<const shm::Arena> arena);

  /// Zeroed memory whose owner gives it back; in a child of fork(), which has no part of it, the
  /// owner does nothing. Throws Error(kInvalidArgument) when it does not fit.
  [[nodiscard]] Buffer allocate(std::int64_t count, DType dtype);

  /// Whether all of the buffer lies in the arena.
  [[nodiscard]] bool contains(const Buffer& buffer) const {
    return arena_->offset_of(buffer.data, buffer.n_bytes()).has_value();
  }

  /// Offset of zeroed memory that the caller gives back with release(), if ever: peers may look at
  /// it after this rank is done. Throws as allocate().
  [[nodiscard]] std::int64_t reserve(std::int64_t n_bytes);

  void release(std::int64_t offset) { heap_.free(offset); }

  [[nodiscard]] const std::shared_ptr<const shm::Arena>& arena() const { return arena_; }

 private:
  std::shared_ptr<const shm::Arena> arena_;
  shm::Heap heap_;
};

}  // namespace unisono::engine
