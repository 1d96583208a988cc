// Messages of the launcher: between agent and guardian, between nodes, and to the launcher in the
// foreground.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include "unisono/launch/messages.h"

#include "expect.h"
#include "input.h"

namespace {

template <class Message>
void expect_same_bytes(const Message& message, std::span<const std::byte> bytes) {
  if (message) {
    unisono::fuzz::expect(std::ranges::equal(encode(*message), bytes),
                          "a message is encoded as it was read");
  }
}

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  namespace launch = unisono::launch;
  const std::span<const std::byte> bytes = unisono::fuzz::Input(data, size).rest();
  expect_same_bytes(launch::decode(bytes), bytes);
  expect_same_bytes(launch::nodes::decode(bytes), bytes);
  expect_same_bytes(launch::hosts::decode(bytes), bytes);
  return 0;
}
