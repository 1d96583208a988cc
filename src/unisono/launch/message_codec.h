#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/field_codec.h"

namespace unisono::launch {

/// The bytes of the launcher's messages. `Message` is a variant of structs as FieldCodec takes
/// them. In front stands the alternative's index as a byte.
template <class Message, std::size_t max_text>
class MessageCodec {
 public:
  [[nodiscard]] static std::vector<std::byte> encode(const Message& message) {
    ByteWriter out;
    out.put(static_cast<std::uint8_t>(message.index()));
    std::visit([&out](const auto& alternative) { Fields::write(out, alternative); }, message);
    return std::move(out).bytes();
  }

  /// Nothing when the bytes are no message.
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

}  // namespace unisono::launch
