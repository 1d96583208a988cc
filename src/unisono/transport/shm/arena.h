#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "unisono/base/fd.h"

namespace unisono::shm {

/// Shared memory that one rank owns and the ranks of its node map: a memfd, so nothing has a name
/// and nothing is left behind. Sparse: pages are taken when first written.
class Arena {
 public:
  /// A new arena, zeroed. Throws Error(kSystem).
  [[nodiscard]] static Arena create(std::int64_t n_bytes);

  /// Maps the arena of another rank. Throws Error(kSystem), or kCorruptData when the descriptor's
  /// file is not as large as said.
  [[nodiscard]] static Arena map(Fd memory, std::int64_t n_bytes);

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;
  Arena(Arena&& other) noexcept;
  Arena& operator=(Arena&&) = delete;

  [[nodiscard]] int fd() const { return memory_.get(); }

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] std::int64_t n_bytes() const { return n_bytes_; }

  /// Where `pointer` lies in the arena; nothing unless `n_bytes` from there lie in it too.
  [[nodiscard]] std::optional<std::int64_t> offset_of(const void* pointer,
                                                      std::int64_t n_bytes) const;

  /// Has the pages there be huge ones, where the system lets shared memory have them on advice.
  void prefer_huge_pages(std::int64_t offset, std::int64_t n_bytes) const noexcept;

 private:
  Arena(Fd memory, std::byte* data, std::int64_t n_bytes);

  Fd memory_;
  std::byte* data_;
  std::int64_t n_bytes_;
};

/// The machine's memory in bytes, rounded up to a GiB: how large an arena need be at most.
[[nodiscard]] std::int64_t default_arena_bytes();

/// What begins at an offset of a rank's arena.
struct ArenaPart {
  std::shared_ptr<const Arena> arena;
  std::int64_t offset_bytes;
};

}  // namespace unisono::shm
