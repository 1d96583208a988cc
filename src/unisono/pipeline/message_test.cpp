#include "unisono/pipeline/message.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"

namespace unisono::pipeline {
namespace {

MessageInfo many_tensors(std::size_t n) {
  MessageInfo info;
  for (std::size_t i = 0; i < n; ++i) {
    info.tensors.push_back(
        {.is_defined = i % 2 == 0, .needs_gradient = i % 3 == 0, .dtype = DType::kBFloat16});
    info.tensors.back().sizes.assign(i % 5, static_cast<std::int64_t>(i));
  }
  return info;
}

TEST(PipelineMessage, IsReadAsItWasWritten) {
  for (const std::size_t n : {0U, 1U, 3U, 40U, 5000U}) {
    const std::vector<std::byte> bytes = encode(many_tensors(n));
    const auto first = std::span(bytes).first(kFirstPart);
    EXPECT_EQ(description_size(first), bytes.size()) << n;
    EXPECT_EQ(decode(bytes), many_tensors(n)) << n;
  }
  EXPECT_EQ(decode(encode({.has_chunk = false})), MessageInfo{.has_chunk = false});
}

TEST(PipelineMessage, CutOrForeignBytesAreNoMessage) {
  const std::vector<std::byte> bytes = encode(many_tensors(40));
  for (std::size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_EQ(decode(std::span(bytes).first(size)), std::nullopt) << size;
  }
  std::vector<std::byte> foreign = bytes;
  foreign[0] ^= std::byte{1};
  EXPECT_EQ(description_size(foreign), std::nullopt);
  EXPECT_EQ(decode(foreign), std::nullopt);
}

TEST(PipelineMessage, SizesThatNoMemoryHasAreRefused) {
  EXPECT_EQ(decode(encode({.tensors = {{.sizes = {-1}}}})), std::nullopt);
  EXPECT_EQ(decode(encode({.tensors = {{.sizes = {1L << 40, 1L << 40}}}})), std::nullopt);
  EXPECT_NE(decode(encode({.tensors = {{.sizes = {1L << 40, 0, 1L << 40}}}})), std::nullopt);
  EXPECT_THROW((void)encode({.tensors = {{.sizes = std::vector<std::int64_t>(256, 1)}}}), Error);
}

}  // namespace
}  // namespace unisono::pipeline
