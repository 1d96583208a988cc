#include "unisono/store/replies.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "unisono/base/bytes.h"

namespace unisono::store {
namespace {

// A mixture of all that can be put, and the bytes that it has to make.
std::vector<std::byte> fill(Replies& replies) {
  ByteWriter expected;
  for (const std::size_t size : {0U, 1U, 4095U, 4096U, 100'000U, 3U, 70'000U}) {
    const auto text = std::make_shared<const std::string>(size, static_cast<char>('a' + size % 26));
    replies.put_string(text);
    expected.put_string(*text);
    replies.put_string(*text);
    expected.put_string(*text);
    replies.put(std::uint8_t{7});
    expected.put(std::uint8_t{7});
    replies.put_raw(std::as_bytes(std::span(*text)));
    expected.put_raw(std::as_bytes(std::span(*text)));
  }
  return std::move(expected).bytes();
}

TEST(Replies, AreTheSameBytesHoweverTheyAreTaken) {
  for (const std::size_t step : {1U, 7U, 4096U, 65'536U, 1'000'000U}) {
    Replies replies;
    const std::vector<std::byte> expected = fill(replies);
    ASSERT_EQ(replies.n_bytes(), expected.size());
    std::vector<std::byte> taken;
    while (replies.n_bytes() > 0) {
      const std::span<const std::byte> first = replies.first();
      const std::span<const std::byte> head = first.first(std::min(first.size(), step));
      const std::span<const std::byte> second = replies.second();
      const std::span<const std::byte> tail =
          second.first(std::min(second.size(), step - head.size()));
      std::vector<std::byte> next(head.begin(), head.end());
      next.insert(next.end(), tail.begin(), tail.end());
      ASSERT_FALSE(next.empty());
      replies.drop(next.size());
      taken.insert(taken.end(), next.begin(), next.end());
      ASSERT_EQ(taken.size() + replies.n_bytes(), expected.size());
    }
    EXPECT_TRUE(taken == expected) << step;
    EXPECT_TRUE(replies.first().empty());
    EXPECT_TRUE(replies.second().empty());
  }
}

TEST(Replies, ShareALargeValueUntilItIsSent) {
  const auto value = std::make_shared<const std::string>(1'000'000, 'x');
  Replies first;
  Replies second;
  first.put_string(value);
  second.put_string(value);
  EXPECT_EQ(value.use_count(), 3);
  EXPECT_EQ(static_cast<const void*>(first.second().data()), value->data());
  first.drop(first.n_bytes());
  EXPECT_EQ(value.use_count(), 2);
}

}  // namespace
}  // namespace unisono::store
