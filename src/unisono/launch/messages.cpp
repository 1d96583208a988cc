#include "unisono/launch/messages.h"

#include <array>
#include <utility>

#include "unisono/base/bytes.h"

namespace unisono::launch {

/// Encodes and decodes the launcher's messages. `Message` is a variant of structs that FieldCodec
/// supports. The index of the alternative precedes the fields, as a byte.
template <class Message, std::size_t max_text>
class MessageCodec {
 public:
  [[nodiscard]] static std::vector<std::byte> encode(const Message& message) {
    ByteWriter out;
    out.put(static_cast<std::uint8_t>(message.index()));
    std::visit([&out](const auto& alternative) { Fields::write(out, alternative); }, message);
    return std::move(out).bytes();
  }

  /// Returns std::nullopt if the bytes are not a valid message.
  [[nodiscard]] static std::optional<Message> decode(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    std::uint8_t type = 0;
    Message message;
    const bool is_whole =
        Fields::read(in, type) &&
        read_body(type, in, message, std::make_index_sequence<std::variant_size_v<Message>>());
    return is_whole && in.rest().empty() ? std::optional<Message>(std::move(message))
                                         : std::nullopt;
  }

 private:
  using Fields = FieldCodec<max_text>;

  template <class T>
  static bool read_alternative(ByteReader& in, Message& message) {
    return Fields::read(in, message.template emplace<T>());
  }

  template <std::size_t... indices>
  static bool read_body(std::size_t type,
                        ByteReader& in,
                        Message& message,
                        std::index_sequence<indices...> /*types*/) {
    using Read = bool (*)(ByteReader&, Message&);
    constexpr std::array<Read, sizeof...(indices)> kReads{
        read_alternative<std::variant_alternative_t<indices, Message>>...};
    return type < kReads.size() && kReads[type](in, message);
  }
};

std::vector<std::byte> encode(const Message& message) {
  return MessageCodec<Message, kMaxMessageBytes>::encode(message);
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  return MessageCodec<Message, kMaxMessageBytes>::decode(bytes);
}

}  // namespace unisono::launch

namespace unisono::launch::hosts {

std::vector<std::byte> encode(const Message& message) {
  return MessageCodec<Message, kMaxTextBytes>::encode(message);
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  return MessageCodec<Message, kMaxTextBytes>::decode(bytes);
}

}  // namespace unisono::launch::hosts

namespace unisono::launch::nodes {

std::vector<std::byte> encode(const Message& message) {
  return MessageCodec<Message, kMaxTextBytes>::encode(message);
}

std::optional<Message> decode(std::span<const std::byte> bytes) {
  return MessageCodec<Message, kMaxTextBytes>::decode(bytes);
}

}  // namespace unisono::launch::nodes
