#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>

#include "unisono/base/fd.h"
#include "unisono/base/mutex.h"

namespace unisono::shm {

/// A CPU may select an L1 cache line by few bits of the address: AMD's CPUs hash bits 12 to 27.
/// Lines of two arenas with equal bits evict each other, and adding an arena to another takes three
/// times as long. Each arena therefore begins at a different huge page within kPlacesBytes.
inline constexpr std::int64_t kHugePageBytes = std::int64_t{1} << 21;
inline constexpr std::int64_t kPlacesBytes = std::int64_t{1} << 28;

/// Shared memory owned by a rank and mapped by the ranks of the node: a memfd or a part of a memfd.
/// The file has no name, so it disappears with the last user. Sparse: the system allocates pages on
/// the first write.
///
/// A handle: copies and parts share a mapping, which is unmapped with the last copy. Immutable,
/// hence usable by any thread; access to the bytes is synchronized by the users. create() and map()
/// throw.
class Arena {
 public:
  /// Creates a zeroed arena in a new file. Throws Error(kSystem).
  [[nodiscard]] static Arena create(std::int64_t n_bytes);

  /// Maps a whole file. Throws Error(kSystem), or Error(kCorruptData) if the size of the file is
  /// not `n_bytes`.
  [[nodiscard]] static Arena map(Fd memory, std::int64_t n_bytes);

  /// Returns the `n_bytes` from `offset` on, which must lie inside the arena. Creates no mapping.
  [[nodiscard]] Arena part(std::int64_t offset, std::int64_t n_bytes) const;

  [[nodiscard]] int fd() const { return mapping_->memory.get(); }

  /// Offset of the arena in the file of fd().
  [[nodiscard]] std::int64_t file_offset() const { return data_ - mapping_->data; }

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] std::int64_t n_bytes() const { return n_bytes_; }

  /// Returns the offset of `pointer` in the arena. Returns std::nullopt unless all `n_bytes` from
  /// there lie inside.
  [[nodiscard]] std::optional<std::int64_t> offset_of(const void* pointer,
                                                      std::int64_t n_bytes) const;

  /// Advises the system to use huge pages there. Has no effect unless the system allows huge pages
  /// for shared memory on advice.
  void prefer_huge_pages(std::int64_t offset, std::int64_t n_bytes) const noexcept;

 private:
  struct Mapping {
    Mapping(Fd memory, std::int64_t n_bytes);
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;
    Mapping(Mapping&&) = delete;
    Mapping& operator=(Mapping&&) = delete;

    Fd memory;
    std::int64_t n_bytes;
    std::byte* data;
  };

  Arena(std::shared_ptr<const Mapping> mapping, std::byte* data, std::int64_t n_bytes);

  std::shared_ptr<const Mapping> mapping_;  // Shared by the parts of a file.
  std::byte* data_;
  std::int64_t n_bytes_;
};

/// Returns the machine's memory in bytes, rounded up to a GiB: the largest useful size of an arena.
[[nodiscard]] std::int64_t default_arena_bytes();

/// The memory from an offset of a rank's arena on.
struct ArenaPart {
  std::shared_ptr<const Arena> arena;
  std::int64_t offset_bytes;
};

/// Allocates parts of an arena, first fit. Freed memory returns to the system, so allocated memory
/// is always zeroed. Thread-safe.
class Heap {
 public:
  /// The arena must outlive the heap.
  explicit Heap(const Arena& arena);

  /// Returns the offset of a zeroed, page-aligned part of at least `n_bytes`. Returns std::nullopt
  /// if no gap is large enough.
  [[nodiscard]] std::optional<std::int64_t> try_allocate(std::int64_t n_bytes);

  /// Frees a part that try_allocate() returned.
  void free(std::int64_t offset);

 private:
  const Arena& arena_;
  Mutex mutex_;
  // Offset to size: the free gaps, and the parts in use.
  std::map<std::int64_t, std::int64_t> gaps_ UNISONO_GUARDED_BY(mutex_);
  std::map<std::int64_t, std::int64_t> parts_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::shm
