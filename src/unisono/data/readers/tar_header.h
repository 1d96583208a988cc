#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono::data {

inline constexpr std::size_t kTarBlockBytes = 512;

using TarBlock = std::span<const std::byte, kTarBlockBytes>;

/// The header of the entry behind it.
struct TarHeader {
  char type = '0';
  std::string name;
  std::uint64_t n_bytes = 0;
};

/// Whether all bytes are zero: half of the mark of an archive's end.
[[nodiscard]] bool is_zero_block(std::span<const std::byte> block);

/// An empty optional for a wrong check sum or a number that is none.
[[nodiscard]] std::optional<TarHeader> decode_tar_header(TarBlock block);

/// A piece of a sparse file that the archive holds; holes between pieces are zeros.
struct SparsePiece {
  std::uint64_t offset = 0;  ///< In the whole file.
  std::uint64_t n_bytes = 0;
};

/// Appends the pieces that a header of GNU tar's type S has, or a block that continues the header.
/// Returns whether another such block follows; an empty optional for a number that is none.
[[nodiscard]] std::optional<bool> decode_gnu_pieces(TarBlock block,
                                                    bool is_header,
                                                    std::vector<SparsePiece>& pieces);

/// The size of the whole file of a header of type S. An empty optional as above.
[[nodiscard]] std::optional<std::uint64_t> decode_gnu_real_size(TarBlock block);

/// Pieces as text: "offset,size,offset,size" with any separator, which a text of pax format 1.0 has
/// behind each number. An empty optional for another text.
[[nodiscard]] std::optional<std::vector<SparsePiece>> decode_pieces(std::string_view text,
                                                                    char separator);

/// Whether pieces follow each other within a file of `real_size` and have `n_stored` bytes.
[[nodiscard]] bool are_pieces_of(const std::vector<SparsePiece>& pieces,
                                 std::uint64_t real_size,
                                 std::uint64_t n_stored);

/// Records of a pax header block about the next entry.
struct PaxRecords {
  std::optional<std::string> path;
  std::optional<std::uint64_t> size;
  /// Set for a sparse file: the size of the whole.
  std::optional<std::uint64_t> real_size;
  /// Formats 0.0 and 0.1; in format 1.0 the content begins with the pieces as text.
  std::vector<SparsePiece> pieces;
  bool content_has_pieces = false;
};

/// An empty optional for text that is no pax records.
[[nodiscard]] std::optional<PaxRecords> decode_pax(std::string_view text);

}  // namespace unisono::data
