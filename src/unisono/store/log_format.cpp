#include "unisono/store/log_format.h"

#include <zconf.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/store/change.h"

namespace unisono::store {
namespace {

// Not text, and broken by whoever takes it for text.
constexpr std::array<unsigned char, 8> kMagic{0x89, 'U', 'N', 'I', 'S', '\r', '\n', 0x1a};
constexpr std::size_t kVersionEnd = kMagic.size() + sizeof(kLogVersion);
constexpr std::size_t kRecordStartBytes = 12;
constexpr std::size_t kNumberBytes = sizeof(std::uint32_t);

std::uint32_t checksum(std::span<const std::byte> bytes) {
  return static_cast<std::uint32_t>(
      ::crc32_z(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

std::uint32_t number_at(std::span<const std::byte> bytes, std::size_t offset) {
  std::uint32_t number = 0;
  std::memcpy(&number, bytes.subspan(offset, sizeof(number)).data(), sizeof(number));
  return number;
}

}  // namespace

std::vector<std::byte> encode_log_header(const LogId& id) {
  ByteWriter writer;
  writer.put_raw(std::as_bytes(std::span(kMagic)));
  writer.put(kLogVersion);
  writer.put_raw(id);
  writer.put(checksum(writer.bytes()));
  return std::move(writer).bytes();
}

LogStart classify_log_start(std::span<const std::byte> bytes) {
  const std::vector<std::byte> expected = encode_log_header({});
  const auto begins_alike = [&](std::size_t n_bytes) {
    return std::ranges::equal(bytes.first(n_bytes), std::span(expected).first(n_bytes));
  };
  const std::size_t n_known = std::min(bytes.size(), kVersionEnd);
  if (!begins_alike(n_known)) {
    return n_known == kVersionEnd && begins_alike(kMagic.size()) ? LogStart::kOtherVersion
                                                                 : LogStart::kForeign;
  }
  if (bytes.size() < kLogHeaderBytes) {
    return LogStart::kTorn;
  }
  const std::size_t n_checked = kLogHeaderBytes - kNumberBytes;
  return number_at(bytes, n_checked) == checksum(bytes.first(n_checked)) ? LogStart::kWhole
                                                                         : LogStart::kForeign;
}

std::vector<std::byte> encode_log_record(const Change& change) {
  ByteWriter payload;
  encode(payload, change);
  ByteWriter record;
  record.put(static_cast<std::uint32_t>(payload.bytes().size()));
  record.put(checksum(payload.bytes()));
  record.put(checksum(record.bytes()));
  record.put_raw(payload.bytes());
  return std::move(record).bytes();
}

LogRecord read_log_record(std::span<const std::byte> bytes) {
  if (bytes.size() < kRecordStartBytes) {
    return {.state = RecordState::kTorn, .n_bytes = kRecordStartBytes};
  }
  if (number_at(bytes, 2 * kNumberBytes) != checksum(bytes.first(2 * kNumberBytes))) {
    return {.state = RecordState::kDamaged};
  }
  const std::size_t n_bytes = kRecordStartBytes + number_at(bytes, 0);
  if (bytes.size() < n_bytes) {
    return {.state = RecordState::kTorn, .n_bytes = n_bytes};
  }
  const auto payload = bytes.first(n_bytes).subspan(kRecordStartBytes);
  if (number_at(bytes, kNumberBytes) != checksum(payload)) {
    return {.state = RecordState::kDamaged};
  }
  std::optional<Change> change = decode_change(payload);
  if (!change) {
    return {.state = RecordState::kDamaged};
  }
  return {.state = RecordState::kWhole, .n_bytes = n_bytes, .change = std::move(*change)};
}

}  // namespace unisono::store
