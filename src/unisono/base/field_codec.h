#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"

namespace unisono {

/// Fields as bytes, one after the other: integers little-endian, bool as a byte, text with its u64
/// length and cut at `max_text` bytes, lists with a u32 number before them. A struct's fields are
/// those that its members(self) ties, in that order; a tuple's what it refers to.
///
/// read() returns false where the bytes are none, and may have set some fields then.
template <std::size_t max_text>
class FieldCodec {
 public:
  static void write(ByteWriter& out, const auto& part)
    requires requires { part.members(part); }
  {
    write(out, part.members(part));
  }

  template <class... Fields>
  static void write(ByteWriter& out, const std::tuple<Fields&...>& fields) {
    std::apply([&out](const auto&... each) { (write(out, each), ...); }, fields);
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

  static bool read(ByteReader& in, auto& part)
    requires requires { part.members(part); }
  {
    return read(in, part.members(part));
  }

  template <class... Fields>
  static bool read(ByteReader& in, const std::tuple<Fields&...>& fields) {
    return std::apply([&in](auto&... each) { return (read(in, each) && ...); }, fields);
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

  template <class T>
  static bool read(ByteReader& in, std::vector<T>& list) {
    std::uint32_t n = 0;
    bool is_whole = read(in, n);
    for (; is_whole && n > 0; --n) {
      is_whole = read(in, list.emplace_back());
    }
    return is_whole;
  }
};

}  // namespace unisono
