#include "unisono/base/bytes.h"

#include <gtest/gtest.h>

namespace unisono {
namespace {

TEST(Bytes, WhatWasWrittenIsRead) {
  ByteWriter writer;
  writer.put<std::int32_t>(-7);
  writer.put_string(std::string("a\0b", 3));
  writer.put<std::uint8_t>(255);
  ByteReader reader(writer.bytes());
  EXPECT_EQ(reader.get<std::int32_t>(), -7);
  EXPECT_EQ(reader.get_string(16), std::string("a\0b", 3));
  EXPECT_EQ(reader.get<std::uint8_t>(), 255);
  EXPECT_TRUE(reader.rest().empty());
}

TEST(Bytes, EveryTruncationIsRefused) {
  ByteWriter writer;
  writer.put_string("hello");
  for (std::size_t size = 0; size < writer.bytes().size(); ++size) {
    ByteReader reader(std::span(writer.bytes()).first(size));
    EXPECT_FALSE(reader.get_string(16).has_value()) << size;
    EXPECT_EQ(reader.rest().size(), size) << "a failed read must not move the reader";
  }
}

TEST(Bytes, LengthsAboveTheLimitAreRefused) {
  ByteWriter writer;
  writer.put_string("hello");
  EXPECT_FALSE(ByteReader(writer.bytes()).get_string(4).has_value());
  ByteWriter huge;
  huge.put<std::uint64_t>(~std::uint64_t{0});
  EXPECT_FALSE(ByteReader(huge.bytes()).get_string(~std::size_t{0}).has_value());
}

}  // namespace
}  // namespace unisono
