#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace unisono {

/// Appends little-endian integers and length-prefixed strings: the encoding of all messages of this
/// library.
class ByteWriter {
 public:
  template <std::integral T>
  void put(T value) {
    const std::size_t at = bytes_.size();
    bytes_.resize(at + sizeof(T));
    std::memcpy(bytes_.data() + at, &value, sizeof(T));
  }

  void put_raw(std::span<const std::byte> raw) {
    bytes_.insert(bytes_.end(), raw.begin(), raw.end());
  }

  /// Appends the length as u64, then the bytes.
  void put_string(std::string_view text) {
    put<std::uint64_t>(text.size());
    put_raw(std::as_bytes(std::span(text)));
  }

  [[nodiscard]] const std::vector<std::byte>& bytes() const& { return bytes_; }

  [[nodiscard]] std::vector<std::byte> bytes() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads the encoding of ByteWriter. Never reads past the end: if too few bytes are left, a getter
/// returns std::nullopt and does not move the reader.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes) : bytes_(bytes) {}

  template <std::integral T>
  [[nodiscard]] std::optional<T> get() {
    if (bytes_.size() < sizeof(T)) {
      return std::nullopt;
    }
    T value;
    std::memcpy(&value, bytes_.data(), sizeof(T));
    bytes_ = bytes_.subspan(sizeof(T));
    return value;
  }

  [[nodiscard]] std::optional<std::string> get_string(std::size_t max_bytes) {
    const std::optional<std::string_view> view = get_string_view(max_bytes);
    return view ? std::optional<std::string>(*view) : std::nullopt;
  }

  /// Returns a view of the string inside the bytes that are read, without a copy.
  [[nodiscard]] std::optional<std::string_view> get_string_view(std::size_t max_bytes) {
    const std::span<const std::byte> start = bytes_;
    const std::optional<std::uint64_t> size = get<std::uint64_t>();
    if (!size || *size > max_bytes || *size > bytes_.size()) {
      bytes_ = start;
      return std::nullopt;
    }
    const std::string_view text(reinterpret_cast<const char*>(bytes_.data()), *size);
    bytes_ = bytes_.subspan(*size);
    return text;
  }

  /// Returns the bytes that have not been read yet.
  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

/// Serializes fields one after the other: integers little-endian, bool as a byte, double as its
/// bits, text with a u64 length and truncated to `max_text` bytes, lists with a u32 count. The
/// fields of a struct are the members that members(self) ties, in that order; the fields of a tuple
/// are the referenced objects. An enumeration is its integer; read() does not check that the value
/// is an enumerator, so the caller must.
///
/// read() returns false for bytes that write() cannot produce, and may have changed some fields by
/// then. Stateless and thread-safe.
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

  static void write(ByteWriter& out, double value) { out.put(std::bit_cast<std::uint64_t>(value)); }

  template <class T>
    requires std::is_enum_v<T>
  static void write(ByteWriter& out, T value) {
    out.put(static_cast<std::underlying_type_t<T>>(value));
  }

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

  static bool read(ByteReader& in, double& value) {
    const std::optional<std::uint64_t> bits = in.get<std::uint64_t>();
    value = std::bit_cast<double>(bits.value_or(0));
    return bits.has_value();
  }

  template <class T>
    requires std::is_enum_v<T>
  static bool read(ByteReader& in, T& value) {
    const auto found = in.get<std::underlying_type_t<T>>();
    value = static_cast<T>(found.value_or(0));
    return found.has_value();
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

/// Initial value of FNV-1a: a hash that is equal on every machine, unlike std::hash. For names and
/// ids; not safe against attackers.
inline constexpr std::uint64_t kFnvStart = 0xCBF29CE484222325;

/// Mixes one more value into the hash. The published function takes bytes.
[[nodiscard]] constexpr std::uint64_t fnv_step(std::uint64_t hash, std::uint64_t value) {
  return (hash ^ value) * 0x100000001B3;
}

/// Returns the FNV-1a hash of the bytes of a text.
[[nodiscard]] constexpr std::uint64_t fnv1a(std::string_view text) {
  std::uint64_t hash = kFnvStart;
  for (const char byte : text) {
    hash = fnv_step(hash, static_cast<unsigned char>(byte));
  }
  return hash;
}

}  // namespace unisono
