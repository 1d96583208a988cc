#include "unisono/data/readers/record_format.h"

#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace unisono::data {
namespace {

template <std::unsigned_integral T>
void put(std::span<std::byte> bytes, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    bytes[at + i] = static_cast<std::byte>(value >> (8 * i));
  }
}

template <std::unsigned_integral T>
T get(std::span<const std::byte> bytes, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    value |= static_cast<T>(std::to_integer<T>(bytes[at + i]) << (8 * i));
  }
  return value;
}

std::uint32_t go_on(std::uint32_t crc, std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(crc, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

}  // namespace

std::uint32_t record_crc(std::uint64_t number,
                         const RecordEntry& entry,
                         std::span<const std::byte> bytes) {
  std::array<std::byte, 20> head{};
  put(head, 0, number);
  put(head, 8, entry.offset);
  put(head, 16, entry.n_bytes);
  const std::uint32_t crc = go_on(0, head);
  // zlib takes a null pointer for the wish to start anew.
  return bytes.empty() ? crc : go_on(crc, bytes);
}

std::array<std::byte, kRecordEntryBytes> encode(const RecordEntry& entry) {
  std::array<std::byte, kRecordEntryBytes> bytes{};
  put(bytes, 0, entry.offset);
  put(bytes, 8, entry.n_bytes);
  put(bytes, 12, entry.crc);
  return bytes;
}

RecordEntry decode_record_entry(std::span<const std::byte, kRecordEntryBytes> bytes) {
  return {.offset = get<std::uint64_t>(bytes, 0),
          .n_bytes = get<std::uint32_t>(bytes, 8),
          .crc = get<std::uint32_t>(bytes, 12)};
}

std::array<std::byte, kRecordFooterBytes> encode(const RecordFooter& footer) {
  std::array<std::byte, kRecordFooterBytes> bytes{};
  put(bytes, 0, footer.index_offset);
  put(bytes, 8, footer.n_records);
  put(bytes, 16, go_on(0, std::span(bytes).first(16)));
  std::ranges::copy(kRecordMagic, bytes.begin() + 24);
  return bytes;
}

std::optional<RecordFooter> decode_record_footer(
    std::span<const std::byte, kRecordFooterBytes> bytes) {
  const RecordFooter footer{.index_offset = get<std::uint64_t>(bytes, 0),
                            .n_records = get<std::uint64_t>(bytes, 8)};
  const bool is_footer = std::ranges::equal(bytes, encode(footer));
  return is_footer ? std::optional(footer) : std::nullopt;
}

}  // namespace unisono::data
