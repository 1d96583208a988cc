#include "unisono/datasets/tar_header.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

namespace unisono::datasets {
namespace {

// Fields of a header block: offset and size.
struct Field {
  std::size_t at;
  std::size_t n_bytes;
};

constexpr Field kName{.at = 0, .n_bytes = 100};
constexpr Field kSize{.at = 124, .n_bytes = 12};
constexpr Field kCheckSum{.at = 148, .n_bytes = 8};
constexpr std::size_t kType = 156;
constexpr Field kMagic{.at = 257, .n_bytes = 6};
constexpr Field kPrefix{.at = 345, .n_bytes = 155};

// Fields of GNU tar's type S: size of the expanded file, and offset and size of each piece.
constexpr Field kRealSize{.at = 483, .n_bytes = 12};
constexpr std::size_t kNumberBytes = 12;

struct GnuPieces {
  std::size_t at;
  std::size_t n_most;
  std::size_t more_at;  // Offset of a byte that is not 0 if another block of pieces follows.
};

constexpr GnuPieces kPiecesOfHeader{.at = 386, .n_most = 4, .more_at = 482};
constexpr GnuPieces kPiecesOfMore{.at = 0, .n_most = 21, .more_at = 504};

// Keys of records about sparse files, in formats 0.0, 0.1 and 1.0.
constexpr std::string_view kSparsePrefix = "GNU.sparse.";

std::string_view raw_text(TarBlock block, Field field) {
  return {reinterpret_cast<const char*>(block.data()) + field.at, field.n_bytes};
}

// The text up to the first NUL.
std::string_view text(TarBlock block, Field field) {
  const std::string_view raw = raw_text(block, field);
  return raw.substr(0, raw.find('\0'));
}

template <class T>
std::optional<T> whole_number(std::string_view digits, int base) {
  T number = 0;
  const auto [stop, problem] =
      std::from_chars(digits.data(), digits.data() + digits.size(), number, base);
  return problem == std::errc() && stop == digits.data() + digits.size() ? std::optional(number)
                                                                         : std::nullopt;
}

// Decodes octal digits between spaces, or GNU tar's binary form, in which the first bit is set.
std::optional<std::uint64_t> number(TarBlock block, Field field) {
  const auto bytes = block.subspan(field.at, field.n_bytes);
  if ((bytes[0] & std::byte{0x80}) != std::byte{0}) {
    // 0xff begins a negative number. Neither negative numbers nor numbers above 63 bits are sizes.
    std::uint64_t value = std::to_integer<std::uint64_t>(bytes[0] & std::byte{0x7f});
    for (const std::byte byte : bytes.subspan(1)) {
      if (value >> 55 != 0) {
        return std::nullopt;
      }
      value = value << 8 | std::to_integer<std::uint64_t>(byte);
    }
    return value;
  }
  std::string_view digits = text(block, field);
  digits.remove_prefix(std::min(digits.find_first_not_of(' '), digits.size()));
  digits = digits.substr(0, digits.find(' '));
  return digits.empty() ? std::optional(std::uint64_t{0}) : whole_number<std::uint64_t>(digits, 8);
}

// The sum of all bytes, with spaces in the field of the sum. Old programs add signed bytes.
bool has_right_sum(TarBlock block) {
  const std::optional<std::uint64_t> expected = number(block, kCheckSum);
  std::int64_t unsigned_sum = 0;
  std::int64_t signed_sum = 0;
  for (std::size_t at = 0; at < block.size(); ++at) {
    const bool is_sum = at >= kCheckSum.at && at < kCheckSum.at + kCheckSum.n_bytes;
    const std::byte byte = is_sum ? std::byte{' '} : block[at];
    unsigned_sum += std::to_integer<std::uint8_t>(byte);
    signed_sum += std::to_integer<std::int8_t>(byte);
  }
  return expected && (*expected == static_cast<std::uint64_t>(unsigned_sum) ||
                      *expected == static_cast<std::uint64_t>(signed_sum));
}

struct SparseRecords {
  bool is_there = false;
  std::optional<std::string> name;
};

// Returns false for a value of another form.
bool take_sparse_record(std::string_view key,
                        std::string_view value,
                        SparseRecords& sparse,
                        PaxRecords& records) {
  const std::optional<std::uint64_t> count = whole_number<std::uint64_t>(value, 10);
  if (key == "name") {
    sparse.name = std::string(value);
  } else if (key == "size" || key == "realsize") {
    records.real_size = count;
    return count.has_value();
  } else if (key == "major") {
    records.content_has_pieces = count == 1U;
    return count && *count <= 1;
  } else if (key == "map") {
    std::optional<std::vector<SparsePiece>> pieces = decode_pieces(value, ',');
    if (!pieces) {
      return false;
    }
    records.pieces = std::move(*pieces);
  } else if (key == "offset") {
    records.pieces.push_back({.offset = count.value_or(0), .n_bytes = 0});
    return count.has_value();
  } else if (key == "numbytes") {
    if (records.pieces.empty() || !count) {
      return false;
    }
    records.pieces.back().n_bytes = *count;
  }
  return true;
}

// Removes a record from the front of `rest`. Returns the text of the record without the length.
std::optional<std::string_view> take_pax_record(std::string_view& rest) {
  const std::size_t space = rest.find(' ');
  if (space == std::string_view::npos) {
    return std::nullopt;
  }
  const std::optional<std::size_t> n_bytes = whole_number<std::size_t>(rest.substr(0, space), 10);
  // At least "=" and the end of the line follow the space.
  if (!n_bytes || *n_bytes > rest.size() || *n_bytes < space + 3 || rest[*n_bytes - 1] != '\n') {
    return std::nullopt;
  }
  const std::string_view record = rest.substr(space + 1, *n_bytes - space - 2);
  rest.remove_prefix(*n_bytes);
  return record;
}

}  // namespace

bool is_zero_block(std::span<const std::byte> block) {
  return std::ranges::all_of(block, [](std::byte byte) { return byte == std::byte{0}; });
}

std::optional<TarHeader> decode_tar_header(TarBlock block) {
  const std::optional<std::uint64_t> n_bytes = number(block, kSize);
  if (!has_right_sum(block) || !n_bytes) {
    return std::nullopt;
  }
  TarHeader header{.type = static_cast<char>(std::to_integer<int>(block[kType])),
                   .name = std::string(text(block, kName)),
                   .n_bytes = *n_bytes};
  // GNU tar's own format has two spaces after "ustar" and other fields in place of the prefix.
  const std::string_view prefix = text(block, kPrefix);
  if (raw_text(block, kMagic) == std::string_view("ustar\0", 6) && !prefix.empty()) {
    header.name = std::string(prefix) + "/" + header.name;
  }
  return header;
}

std::optional<bool> decode_gnu_pieces(TarBlock block,
                                      bool is_header,
                                      std::vector<SparsePiece>& pieces) {
  const GnuPieces place = is_header ? kPiecesOfHeader : kPiecesOfMore;
  for (std::size_t piece = 0; piece < place.n_most; ++piece) {
    const std::size_t at = place.at + 2 * piece * kNumberBytes;
    if (block[at] == std::byte{0}) {
      break;
    }
    const auto offset = number(block, {.at = at, .n_bytes = kNumberBytes});
    const auto n_bytes = number(block, {.at = at + kNumberBytes, .n_bytes = kNumberBytes});
    if (!offset || !n_bytes) {
      return std::nullopt;
    }
    pieces.push_back({.offset = *offset, .n_bytes = *n_bytes});
  }
  return block[place.more_at] != std::byte{0};
}

std::optional<std::uint64_t> decode_gnu_real_size(TarBlock block) {
  return number(block, kRealSize);
}

std::optional<std::vector<SparsePiece>> decode_pieces(std::string_view text, char separator) {
  std::vector<SparsePiece> pieces;
  bool is_offset = true;
  while (!text.empty()) {
    const std::size_t end = text.find(separator);
    const auto value = whole_number<std::uint64_t>(text.substr(0, end), 10);
    if (!value) {
      return std::nullopt;
    }
    if (is_offset) {
      pieces.push_back({.offset = *value, .n_bytes = 0});
    } else {
      pieces.back().n_bytes = *value;
    }
    is_offset = !is_offset;
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
  return is_offset ? std::optional(std::move(pieces)) : std::nullopt;
}

bool are_pieces_of(const std::vector<SparsePiece>& pieces,
                   std::uint64_t real_size,
                   std::uint64_t n_stored) {
  std::uint64_t end = 0;
  for (const SparsePiece& piece : pieces) {
    if (piece.offset < end || piece.offset > real_size ||
        piece.n_bytes > real_size - piece.offset || piece.n_bytes > n_stored) {
      return false;
    }
    end = piece.offset + piece.n_bytes;
    n_stored -= piece.n_bytes;
  }
  return n_stored == 0;
}

std::optional<PaxRecords> decode_pax(std::string_view rest) {
  PaxRecords records;
  SparseRecords sparse;
  while (!rest.empty()) {
    const std::optional<std::string_view> record = take_pax_record(rest);
    if (!record || record->find('=') == std::string_view::npos) {
      return std::nullopt;
    }
    const std::size_t equals = record->find('=');
    const std::string_view key = record->substr(0, equals);
    const std::string_view value = record->substr(equals + 1);
    if (key == "path") {
      records.path = std::string(value);
    } else if (key == "size") {
      records.size = whole_number<std::uint64_t>(value, 10);
      if (!records.size) {
        return std::nullopt;
      }
    } else if (key.starts_with(kSparsePrefix)) {
      sparse.is_there = true;
      if (!take_sparse_record(key.substr(kSparsePrefix.size()), value, sparse, records)) {
        return std::nullopt;
      }
    }
  }
  if (sparse.is_there && !records.real_size) {
    return std::nullopt;
  }
  // "path" then has a substitute name for programs that do not support sparse files.
  records.path = sparse.name ? sparse.name : records.path;
  return records;
}

}  // namespace unisono::datasets
