#include "unisono/report/event_record.h"

#include <cstring>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace unisono::report {
namespace {

using ::testing::HasSubstr;

constexpr std::size_t kFrameBytes = 16;

TEST(Crc32c, IsThatOfTheStandard) {
  EXPECT_EQ(crc32c(""), 0U);
  EXPECT_EQ(crc32c("123456789"), 0xE3069283U);
  EXPECT_EQ(crc32c(std::string(32, '\0')), 0x8A9136AAU);
  EXPECT_EQ(crc32c(std::string(32, '\xFF')), 0x62A8AB43U);
}

// The first bytes of every event file of TensorFlow.
TEST(EventRecord, AFileBeginsAsTensorFlowsDo) {
  const std::string record = version_record({.unix_seconds = 1.5});
  EXPECT_EQ(record.substr(0, 12), std::string("\x18\0\0\0\0\0\0\0\xA3\x7F\x4B\x22", 12));
  EXPECT_EQ(record.substr(12, 9), std::string("\x09\0\0\0\0\0\0\xF8\x3F", 9));
  EXPECT_EQ(record.substr(21, 15),
            "\x1A\x0D"
            "brain.Event:2");
  EXPECT_EQ(record.size(), 24 + kFrameBytes);
}

float last_float(const std::string& record) {
  float value = 0;
  std::memcpy(&value, record.data() + record.size() - 8, sizeof(value));
  return value;
}

TEST(EventRecord, ValuesBeyond32BitsAreInfinite) {
  const std::vector<NamedValue> large{{"x", 1e300}};
  EXPECT_EQ(last_float(scalars_record({}, large)), std::numeric_limits<float>::infinity());
  const std::vector<NamedValue> small{{"x", -1e300}};
  EXPECT_EQ(last_float(scalars_record({}, small)), -std::numeric_limits<float>::infinity());
  const std::vector<NamedValue> usual{{"x", 0.25}};
  EXPECT_EQ(last_float(scalars_record({}, usual)), 0.25F);
}

// Readers of Protocol Buffers reject a whole file because of a string that is not valid UTF-8.
TEST(EventRecord, NamesAreUtf8) {
  const std::vector<NamedValue> values{{"l\xFFss", 1}};
  EXPECT_THAT(scalars_record({}, values), HasSubstr("l?ss"));
  EXPECT_THAT(text_record({}, "n\xFF", "t\xFF"), HasSubstr("n?"));
}

TEST(EventRecord, ANameOfAnyLengthFits) {
  for (const std::size_t size : {0U, 100U, 127U, 128U, 20000U}) {
    const std::string name(size, 'n');
    const std::vector<NamedValue> values{{name, 1}};
    const std::string record = scalars_record({.unix_seconds = 0, .step = 300}, values);
    std::uint64_t length = 0;
    std::memcpy(&length, record.data(), sizeof(length));
    EXPECT_EQ(record.size(), length + kFrameBytes);
    EXPECT_THAT(record, HasSubstr(name));
  }
}

}  // namespace
}  // namespace unisono::report
