#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace unisono::datasets {

// A record file consists of the magic, the bytes of the records, an entry for each record, and the
// footer. All numbers are little-endian.

/// First and last bytes of a record file: "UNIREC01".
inline constexpr std::array<std::byte, 8> kRecordMagic{std::byte{'U'},
                                                       std::byte{'N'},
                                                       std::byte{'I'},
                                                       std::byte{'R'},
                                                       std::byte{'E'},
                                                       std::byte{'C'},
                                                       std::byte{'0'},
                                                       std::byte{'1'}};

/// Place of a record in the file.
struct RecordEntry {
  std::uint64_t offset = 0;
  std::uint32_t n_bytes = 0;
  std::uint32_t crc = 0;  ///< record_crc()
};

/// Offset, size and CRC-32 of a record.
inline constexpr std::size_t kRecordEntryBytes = 16;

/// Place of the entries in the file.
struct RecordFooter {
  std::uint64_t index_offset = 0;
  std::uint64_t n_records = 0;
};

/// Offset and number of the entries, the CRC-32 of both, four zero bytes, the magic.
inline constexpr std::size_t kRecordFooterBytes = 32;

/// CRC-32 of the number of the record, offset and size of the entry, and the bytes of the record:
/// detects changed bytes and swapped records.
[[nodiscard]] std::uint32_t record_crc(std::uint64_t number,
                                       const RecordEntry& entry,
                                       std::span<const std::byte> bytes);

[[nodiscard]] std::array<std::byte, kRecordEntryBytes> encode(const RecordEntry& entry);
[[nodiscard]] RecordEntry decode_record_entry(std::span<const std::byte, kRecordEntryBytes> bytes);

[[nodiscard]] std::array<std::byte, kRecordFooterBytes> encode(const RecordFooter& footer);

/// Returns an empty optional for bytes that are not a footer, or a changed footer.
[[nodiscard]] std::optional<RecordFooter> decode_record_footer(
    std::span<const std::byte, kRecordFooterBytes> bytes);

}  // namespace unisono::datasets
