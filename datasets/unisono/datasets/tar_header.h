#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::datasets {

inline constexpr std::size_t kTarBlockBytes = 512;

/// A header block.
using TarBlock = std::span<const std::byte, kTarBlockBytes>;

/// The fields of a header block that the reader needs.
struct TarHeader {
  char type = '0';
  std::string name;
  std::uint64_t n_bytes = 0;
};

/// True if all bytes are zero. Two such blocks mark the end of an archive.
[[nodiscard]] bool is_zero_block(std::span<const std::byte> block);

/// Returns an empty optional for a wrong check sum or an invalid number.
[[nodiscard]] std::optional<TarHeader> decode_tar_header(TarBlock block);

/// A stored piece of a sparse file. Holes between pieces are zeros.
struct SparsePiece {
  std::uint64_t offset = 0;  ///< Offset in the expanded file.
  std::uint64_t n_bytes = 0;
};

/// Appends the pieces of a header of GNU tar's type S, or of a block that continues the header.
/// Returns true if another such block follows, and an empty optional for an invalid number.
[[nodiscard]] std::optional<bool> decode_gnu_pieces(TarBlock block,
                                                    bool is_header,
                                                    std::vector<SparsePiece>& pieces);

/// Size of the expanded file of a header of type S; an empty optional for an invalid number.
[[nodiscard]] std::optional<std::uint64_t> decode_gnu_real_size(TarBlock block);

/// Decodes pieces from text: "offset,size,offset,size" with any separator. Text of pax format 1.0
/// has a separator after each number. Returns an empty optional for another text.
[[nodiscard]] std::optional<std::vector<SparsePiece>> decode_pieces(std::string_view text,
                                                                    char separator);

/// True if the pieces are in order, lie in a file of `real_size`, and have `n_stored` bytes.
[[nodiscard]] bool are_pieces_of(const std::vector<SparsePiece>& pieces,
                                 std::uint64_t real_size,
                                 std::uint64_t n_stored);

/// Records of a pax header block for the next entry.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
  /// Size of the expanded file, set for a sparse file.
  std::optional<std::uint64_t> real_size;
  /// Pieces of formats 0.0 and 0.1. In format 1.0 the content begins with the pieces as text.
  std::vector<SparsePiece> pieces;
  bool content_has_pieces = false;
};

/// Returns an empty optional for text that is not pax records.
[[nodiscard]] std::optional<PaxRecords> decode_pax(std::string_view text);

}  // namespace unisono::datasets
