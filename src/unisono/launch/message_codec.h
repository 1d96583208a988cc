#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <variant>
#include <vector>

#include "unisono/base/bytes.h"

namespace unisono::launch {

/// The bytes of the launcher's messages. `Message` is a variant of structs whose members(self) ties
/// their members; they are written in that order: integers little-endian, bool as a byte, text with
/// its u64 length and cut at `max_text` bytes, lists with a u32 number before them. In front stands
/// the alternative's index as a byte. Parts of messages may be such structs, too.
template <class Message, std::size_t max_text>
class MessageCodec {
 public:
  [[nodiscard]] static std::vector<std::byte> encode(const Message& message) {
    ByteWriter out;
    out.put(static_cast<std::uint8_t>(message.index()));
    std::visit([&out](const auto& alternative) { write(out, alternative); }, message);
    return std::move(out).bytes();
  }

  /// Nothing when the bytes are no message.
  [[nodiscard]] static std::optional<Message> decode(std::span<const std::byte> bytes) {
    ByteReader in(bytes);
    std::uint8_t type = 0;
    Message message;
    const bool is_whole =
        read(in, type) &&
        read_body(type, in, message, std::make_index_sequence<std::variant_size_v<Message>>());
    return is_whole && in.rest().empty() ? std::optional<Message>(std::move(message))
                                         : std::nullopt;
  }

 private:
  static void write(ByteWriter& out, const auto& part)
    requires requires { part.members(part); }
  {
    std::apply([&out](const auto&... each) { (write(out, each), ...); }, part.members(part));
  }

  static void write(ByteWriter& out, std::integral auto value) { out.put(value); }

  static void write(ByteWriter& out, bool value) { out.put(static_cast<std::uint8_t>(value)); }

  static void write(ByteWriter& out, const std::string& text) {
    out.put_string(std::string_view(text).substr(0, max_text));
  }

  template <class T>
  static void write(ByteWriter& out, const std::vector<T>& list) {
    out.put(static_cast<std::uint32_t>(list.size()));
    for (const T& each : list) {
      write(out, each);
    }
  }

  template <std::integral T>
  static bool read(ByteReader& in, T& value) {
    const std::optional<T> found = in.get<T>();
    value = found.value_or(T{});
    return found.has_value();
  }

  static bool read(ByteReader& in, bool& value) {
    const std::optional<std::uint8_t> byte = in.get<std::uint8_t>();
    value = byte == 1;
    return byte && *byte <= 1;
  }

  static bool read(ByteReader& in, std::string& text) {
    std::optional<std::string> found = in.get_string(max_text);
    if (!found) {
      return false;
    }
    text = std::move(*found);
    return true;
  }

  static bool read(ByteReader& in, auto& part)
    requires requires { part.members(part); }
  {
    return std::apply([&in](auto&... each) { return (read(in, each) && ...); }, part.members(part));
  }

  template <class T>
  static bool read(ByteReader& in, std::vector<T>& list) {
    std::uint32_t n = 0;
    bool is_whole = read(in, n);
    for (; is_whole && n > 0; --n) {
      is_whole = read(in, list.emplace_back());
    }
    return is_whole;
  }

  template <class T>
  static bool read_alternative(ByteReader& in, Message& message) {
    return read(in, message.template emplace<T>());
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
