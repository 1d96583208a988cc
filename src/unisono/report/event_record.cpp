#include "unisono/report/event_record.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>

#include "unisono/base/text.h"

namespace unisono::report {
namespace {

constexpr std::uint32_t kPolynomial = 0x82F63B78;  // The low bit stands for the highest power.
constexpr std::uint32_t kByte = 0xFF;

constexpr std::array<std::uint32_t, 256> kSumOfByte = [] {
  std::array<std::uint32_t, 256> sums{};
  for (std::uint32_t byte = 0; byte < sums.size(); ++byte) {
    std::uint32_t sum = byte;
    for (int bit = 0; bit < 8; ++bit) {
      sum = (sum >> 1U) ^ ((sum & 1U) != 0 ? kPolynomial : 0);
    }
    sums.at(byte) = sum;
  }
  return sums;
}();

}  // namespace

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t sum = ~std::uint32_t{0};
  for (const char byte : bytes) {
    sum = (sum >> 8U) ^ kSumOfByte[(sum ^ static_cast<unsigned char>(byte)) & kByte];
  }
  return ~sum;
}

namespace {

// Encoding of a field's value: the low bits of the field's key.
enum class Wire : std::uint8_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void put_little_endian(std::string& to, std::uint64_t value, int n_bytes) {
  for (int i = 0; i < n_bytes; ++i) {
    to += static_cast<char>(value >> static_cast<unsigned>(8 * i));
  }
}

void put_varint(std::string& to, std::uint64_t value) {
  constexpr std::uint64_t kMore = 0x80;
  while (value >= kMore) {
    to += static_cast<char>(value | kMore);
    value >>= 7U;
  }
  to += static_cast<char>(value);
}

// A Protocol Buffers message. Setters return the message, so that messages can be nested.
class Message {
 public:
  Message& integer(unsigned field, std::int64_t value) {
    key(field, Wire::kVarint);
    put_varint(bytes_, static_cast<std::uint64_t>(value));
    return *this;
  }

  Message& real64(unsigned field, double value) {
    key(field, Wire::kFixed64);
    put_little_endian(bytes_, std::bit_cast<std::uint64_t>(value), 8);
    return *this;
  }

  Message& real32(unsigned field, float value) {
    key(field, Wire::kFixed32);
    put_little_endian(bytes_, std::bit_cast<std::uint32_t>(value), 4);
    return *this;
  }

  Message& text(unsigned field, std::string_view value) {
    key(field, Wire::kBytes);
    put_varint(bytes_, value.size());
    bytes_ += value;
    return *this;
  }

  Message& message(unsigned field, const Message& value) { return text(field, value.bytes_); }

  [[nodiscard]] const std::string& bytes() const { return bytes_; }

 private:
  void key(unsigned field, Wire wire) {
    put_varint(bytes_, (std::uint64_t{field} << 3U) | static_cast<std::uint64_t>(wire));
  }

  std::string bytes_;
};

namespace event {
constexpr unsigned kWallTime = 1;
constexpr unsigned kStep = 2;
constexpr unsigned kFileVersion = 3;
constexpr unsigned kSummary = 5;
constexpr unsigned kSessionLog = 7;
}  // namespace event

namespace summary {
constexpr unsigned kValue = 1;
// Fields of a value:
constexpr unsigned kTag = 1;
constexpr unsigned kSimpleValue = 2;
constexpr unsigned kTensor = 8;
constexpr unsigned kMetadata = 9;
}  // namespace summary

// Returns the rotated and shifted check sum, because a plain CRC over data that contains a CRC is
// weak.
std::uint32_t masked_crc(std::string_view bytes) {
  constexpr std::uint32_t kMask = 0xA282EAD8;
  return std::rotr(crc32c(bytes), 15) + kMask;
}

std::string framed(const Message& event) {
  const std::string& bytes = event.bytes();
  std::string record;
  put_little_endian(record, bytes.size(), 8);
  put_little_endian(record, masked_crc(record), 4);
  record += bytes;
  put_little_endian(record, masked_crc(bytes), 4);
  return record;
}

// A missing field has the value 0.
Message event_at(const EventTime& time) {
  Message message = Message().real64(event::kWallTime, time.unix_seconds);
  return time.step == 0 ? message : message.integer(event::kStep, time.step);
}

// The conversion of a finite value that exceeds the range of float is undefined, so such a value
// becomes infinite.
float as_float(double value) {
  if (std::isfinite(value) && std::abs(value) > std::numeric_limits<float>::max()) {
    return std::copysign(std::numeric_limits<float>::infinity(), value > 0 ? 1.F : -1.F);
  }
  return static_cast<float>(value);
}

}  // namespace

std::string version_record(const EventTime& time) {
  return framed(event_at(time).text(event::kFileVersion, "brain.Event:2"));
}

std::string restart_record(const EventTime& time) {
  constexpr unsigned kStatus = 1;
  constexpr std::int64_t kStart = 1;
  return framed(event_at(time).message(event::kSessionLog, Message().integer(kStatus, kStart)));
}

std::string scalars_record(const EventTime& time, std::span<const NamedValue> values) {
  Message all;
  for (const NamedValue& value : values) {
    all.message(summary::kValue,
                Message()
                    .text(summary::kTag, as_utf8(value.name))
                    .real32(summary::kSimpleValue, as_float(value.value)));
  }
  return framed(event_at(time).message(event::kSummary, all));
}

std::string text_record(const EventTime& time, std::string_view name, std::string_view text) {
  constexpr unsigned kType = 1;
  constexpr std::int64_t kString = 7;
  constexpr unsigned kShape = 2;
  constexpr unsigned kDimension = 2;
  constexpr unsigned kSize = 1;
  constexpr unsigned kStrings = 8;
  const Message tensor =
      Message()
          .integer(kType, kString)
          .message(kShape, Message().message(kDimension, Message().integer(kSize, 1)))
          .text(kStrings, as_utf8(text));
  constexpr unsigned kPlugin = 1;
  constexpr unsigned kPluginName = 1;
  const Message metadata = Message().message(kPlugin, Message().text(kPluginName, "text"));
  const Message value = Message()
                            .text(summary::kTag, as_utf8(name))
                            .message(summary::kMetadata, metadata)
                            .message(summary::kTensor, tensor);
  return framed(event_at(time).message(event::kSummary, Message().message(summary::kValue, value)));
}

}  // namespace unisono::report
