#include "unisono/launch/hosts/messages.h"

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "unisono/launch/message_codec.h"

namespace unisono::launch::hosts {

std::vector<std::byte> encode(const Message& message) {
  return MessageCodec<Message, kMaxTextBytes>::encode(message);
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  return MessageCodec<Message, kMaxTextBytes>::decode(bytes);
}

}  // namespace unisono::launch::hosts
