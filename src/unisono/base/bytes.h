#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace unisono {

/// Appends little-endian integers and length-prefixed strings, as all our messages have them.
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

  /// u64 length, then the bytes.
  void put_string(std::string_view text) {
    put<std::uint64_t>(text.size());
    put_raw(std::as_bytes(std::span(text)));
  }

  [[nodiscard]] const std::vector<std::byte>& bytes() const& { return bytes_; }

  [[nodiscard]] std::vector<std::byte> bytes() && { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Reads what ByteWriter wrote. Never reads past the end: each getter returns nothing when too few
/// bytes are left, and then the reader stays where it was.
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

  /// The string where it lies, among the bytes that are read.
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

  [[nodiscard]] std::span<const std::byte> rest() const { return bytes_; }

 private:
  std::span<const std::byte> bytes_;
};

}  // namespace unisono
