#include "unisono/launch/process/protocol.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/launch/message_codec.h"

namespace unisono::launch {

std::vector<std::byte> encode(const Message& message) {
  return MessageCodec<Message, kMaxMessageBytes>::encode(message);
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  return MessageCodec<Message, kMaxMessageBytes>::decode(bytes);
}

}  // namespace unisono::launch
