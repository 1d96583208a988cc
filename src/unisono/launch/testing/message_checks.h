#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include <gtest/gtest.h>

namespace unisono::launch::testing {

/// What decode() of the launcher's messages is.
template <class Message>
using Decode = std::optional<Message> (*)(std::span<const std::byte> bytes);

/// Expects a message of each kind to be what it was when it has been encoded and decoded.
template <class Message>
void expect_all_to_come_back(const std::vector<Message>& one_of_each, Decode<Message> decode) {
  ASSERT_EQ(one_of_each.size(), std::variant_size_v<Message>);
  for (const Message& message : one_of_each) {
    const Message copy = decode(encode(message)).value();
    ASSERT_EQ(copy.index(), message.index());
    EXPECT_EQ(encode(copy), encode(message)) << message.index();
  }
}

/// Expects bytes to be no message where some are missing, or there is one more, or the kind is
/// none.
template <class Message>
void expect_other_bytes_to_be_none(const std::vector<Message>& messages, Decode<Message> decode) {
  for (const Message& message : messages) {
    std::vector<std::byte> bytes = encode(message);
    for (std::size_t size = 0; size < bytes.size(); ++size) {
      EXPECT_FALSE(decode(std::span(bytes).first(size)).has_value()) << message.index();
    }
    bytes.push_back(std::byte{0});
    EXPECT_FALSE(decode(bytes).has_value()) << message.index();
  }
  EXPECT_FALSE(decode(std::vector{std::byte{99}}).has_value());
}

}  // namespace unisono::launch::testing
