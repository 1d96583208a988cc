#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace unisono::data {

// A record file: the magic, the records' bytes, an entry for each record, the footer. All numbers
// are little-endian.

inline constexpr std::array<std::byte, 8> kRecordMagic{std::byte{'U'},
                                                       std::byte{'N'},
                                                       std::byte{'I'},
                                                       std::byte{'R'},
                                                       std::byte{'E'},
                                                       std::byte{'C'},
                                                       std::byte{'0'},
                                                       std::byte{'1'}};

/// Where a record lies.
struct RecordEntry {
  std::uint64_t offset = 0;
  std::uint32_t n_bytes = 0;
  std::uint32_t crc = 0;  ///< record_crc()
};

inline constexpr std::size_t kRecordEntryBytes = 16;

/// Where the entries lie.
struct RecordFooter {
  std::uint64_t index_offset = 0;
  std::uint64_t n_records = 0;
};

/// Offset, number, a CRC-32 of both, four zero bytes, the magic once more.
inline constexpr std::size_t kRecordFooterBytes = 32;

/// A CRC-32 of the record's number, its entry but for the CRC, and its bytes: so that neither a
/// changed byte nor one record in place of another goes unnoticed.
[[nodiscard]] std::uint32_t record_crc(std::uint64_t number,
                                       const RecordEntry& entry,
                                       std::span<const std::byte> bytes);

[[nodiscard]] std::array<std::byte, kRecordEntryBytes> encode(const RecordEntry& entry);
[[nodiscard]] RecordEntry decode_record_entry(std::span<const std::byte, kRecordEntryBytes> bytes);

[[nodiscard]] std::array<std::byte, kRecordFooterBytes> encode(const RecordFooter& footer);

/// Nothing when they are no footer, or a changed one.
[[nodiscard]] std::optional<RecordFooter> decode_record_footer(
    std::span<const std::byte, kRecordFooterBytes> bytes);

}  // namespace unisono::data
