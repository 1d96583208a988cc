#pragma once

#include <concepts>
#include <cstddef>
#include <list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "unisono/base/bytes.h"

namespace unisono::store {

/// What a server has to send to a client, in order. Large values are not copied: all clients that
/// are sent one share it.
class Replies {
 public:
  template <std::integral T>
  void put(T value) {
    own().put(value);
    n_bytes_ += sizeof(T);
  }

  void put_raw(std::span<const std::byte> raw);

  /// As ByteWriter has it: the length and the bytes.
  void put_string(std::string_view text);
  void put_string(const std::shared_ptr<const std::string>& text);

  [[nodiscard]] std::size_t n_bytes() const { return n_bytes_; }

  /// The first bytes that lie together, and those behind them; valid until the next change.
  [[nodiscard]] std::span<const std::byte> first() const;
  [[nodiscard]] std::span<const std::byte> second() const;

  /// Forgets the first `n_bytes`, at most all, and gives memory back.
  void drop(std::size_t n_bytes);

 private:
  // Bytes of its own, or else a shared value.
  struct Part {
    ByteWriter own = {};
    std::shared_ptr<const std::string> shared = nullptr;

    [[nodiscard]] std::span<const std::byte> bytes() const;
  };

  ByteWriter& own();

  std::list<Part> parts_;      // Unlike a deque, it takes no memory while it is empty.
  std::size_t n_dropped_ = 0;  // Bytes of the first part.
  std::size_t n_bytes_ = 0;
};

}  // namespace unisono::store
