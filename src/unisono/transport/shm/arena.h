#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "unisono/base/fd.h"

namespace unisono::shm {

/// A CPU may find a line in its first cache by a few bits of the address: AMD's hash bits 12 to 27.
/// Lines of two arenas that differ in none of these push each other out, and adding one arena to
/// another takes three times as long. So each begins at a huge page of its own in kPlacesBytes.
inline constexpr std::int64_t kHugePageBytes = std::int64_t{1} << 21;
inline constexpr std::int64_t kPlacesBytes = std::int64_t{1} << 28;

/// Shared memory that one rank owns and the ranks of its node map: a memfd or a part of one, so
/// nothing has a name and nothing is left behind. Sparse: pages are taken when first written.
/// Copies and parts share one mapping, which ends with the last of them.
class Arena {
 public:
  /// A new arena, zeroed, in a file of its own. Throws Error(kSystem).
  [[nodiscard]] static Arena create(std::int64_t n_bytes);

  /// Maps a whole file. Throws Error(kSystem), or kCorruptData when the descriptor's file is not as
  /// large as said.
  [[nodiscard]] static Arena map(Fd memory, std::int64_t n_bytes);

  /// The `n_bytes` from `offset` on, which lie inside. Maps nothing.
  [[nodiscard]] Arena part(std::int64_t offset, std::int64_t n_bytes) const;

  [[nodiscard]] int fd() const { return mapping_->memory.get(); }

  /// Where the arena begins in the file of fd().
  [[nodiscard]] std::int64_t file_offset() const { return data_ - mapping_->data; }

  [[nodiscard]] std::byte* data() const { return data_; }

  [[nodiscard]] std::int64_t n_bytes() const { return n_bytes_; }

  /// Where `pointer` lies in the arena; nothing unless `n_bytes` from there lie in it too.
  [[nodiscard]] std::optional<std::int64_t> offset_of(const void* pointer,
                                                      std::int64_t n_bytes) const;

  /// Has the pages there be huge ones, where the system lets shared memory have them on advice.
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

/// The machine's memory in bytes, rounded up to a GiB: how large an arena need be at most.
[[nodiscard]] std::int64_t default_arena_bytes();

/// What begins at an offset of a rank's arena.
struct ArenaPart {
  std::shared_ptr<const Arena> arena;
  std::int64_t offset_bytes;
};

}  // namespace unisono::shm
