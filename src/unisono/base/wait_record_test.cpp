#include "unisono/base/wait_record.h"

#include <chrono>

#include <gtest/gtest.h>

namespace unisono {
namespace {

using Time = Deadline::Clock::time_point;
using std::chrono::nanoseconds;

WaitRecord two_waits() {
  return {.pid = 4123,
          .waits = {{.since = Time(nanoseconds(17)),
                     .seen = Time(nanoseconds(5'000'000'000)),
                     .operation = "all_reduce #3 (f32[8], sum)",
                     .late = {1, 3}},
                    {.since = Time(nanoseconds(18)),
                     .seen = Time(nanoseconds(19)),
                     .operation = "recv (f32[4], from any rank, tag 3)",
                     .late = {}}}};
}

TEST(WaitRecord, ComesBackAsItWas) {
  const WaitRecord record = two_waits();
  const auto found = decode_wait_record(encode(record));
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->pid, 4123);
  ASSERT_EQ(found->waits.size(), 2U);
  for (std::size_t i = 0; i < found->waits.size(); ++i) {
    EXPECT_EQ(found->waits[i].since, record.waits[i].since);
    EXPECT_EQ(found->waits[i].seen, record.waits[i].seen);
    EXPECT_EQ(found->waits[i].operation, record.waits[i].operation);
    EXPECT_EQ(found->waits[i].late, record.waits[i].late);
  }
}

TEST(WaitRecord, ShortenedOrLengthenedBytesAreNone) {
  std::vector<std::byte> bytes = encode(two_waits());
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(decode_wait_record(std::span(bytes).first(n)).has_value()) << n;
  }
  bytes.push_back(std::byte{0});
  EXPECT_FALSE(decode_wait_record(bytes).has_value());
}

TEST(WaitRecord, WhatIsTooLargeFitsInPart) {
  LongWait wait = two_waits().waits.front();
  wait.operation = std::string(100'000, 'x');
  wait.late.assign(100'000, 7);
  const std::vector<std::byte> bytes =
      checked(encode({.pid = 1, .waits = std::vector<LongWait>(100, wait)}));
  EXPECT_LE(bytes.size(), kWaitFileBytes);
  const auto found = decode_wait_record(find_checked(bytes).value());
  ASSERT_TRUE(found.has_value());
  EXPECT_GT(found->waits.size(), 1U);
  EXPECT_GT(found->waits.front().late.size(), 100U);
}

TEST(WaitRecord, HalfWrittenBytesAreNoticed) {
  std::vector<std::byte> file(kWaitFileBytes, std::byte{0xff});
  const std::vector<std::byte> bytes = checked(encode(two_waits()));
  for (std::size_t n = 0; n < bytes.size(); ++n) {
    EXPECT_FALSE(find_checked(file).has_value()) << n;
    file[n] = bytes[n];
  }
  EXPECT_TRUE(find_checked(file).has_value()) << "what is behind it does not count";
}

TEST(WaitRecord, AFileOfZerosHoldsNone) {
  EXPECT_FALSE(find_checked(std::vector<std::byte>(kWaitFileBytes)).has_value());
  EXPECT_FALSE(find_checked({}).has_value());
}

}  // namespace
}  // namespace unisono
