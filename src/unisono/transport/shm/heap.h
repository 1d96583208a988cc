#pragma once

#include <cstdint>
#include <map>
#include <optional>

#include "unisono/base/mutex.h"
#include "unisono/transport/shm/arena.h"

namespace unisono::shm {

/// Hands out parts of an arena, first fit. Freed memory goes back to the system, so what is handed
/// out again is zero again. Thread-safe.
class Heap {
 public:
  /// The arena must outlive the heap.
  explicit Heap(const Arena& arena);

  /// Offset of a zeroed part of at least `n_bytes`, at a multiple of a page; nothing when no gap is
  /// large enough.
  [[nodiscard]] std::optional<std::int64_t> try_allocate(std::int64_t n_bytes);

  /// Takes back what try_allocate() gave.
  void free(std::int64_t offset);

 private:
  const Arena& arena_;
  Mutex mutex_;
  // Offset to size, of the free gaps and of the parts in use.
  std::map<std::int64_t, std::int64_t> gaps_ UNISONO_GUARDED_BY(mutex_);
  std::map<std::int64_t, std::int64_t> parts_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::shm
