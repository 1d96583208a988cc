// The messages between agent and guardian.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "unisono/launch/process/protocol.h"

#include "expect.h"
#include "input.h"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::span<const std::byte> bytes = unisono::fuzz::Input(data, size).rest();
  const std::optional<unisono::launch::Message> message = unisono::launch::decode(bytes);
  if (message) {
    unisono::fuzz::expect(std::ranges::equal(unisono::launch::encode(*message), bytes),
                          "a message is encoded as it was read");
  }
  return 0;
}
