#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/transport/descriptor.h"

namespace unisono::shm {

/// A text with a number, in shared memory: one rank writes it, anew as often as it likes, and its
/// peers read it at any time. All zero at first, which is none.
class SeqlockText {
 public:
  /// Of a longer text only so much is kept, in whole characters.
  static constexpr std::size_t kMaxBytes = transport::kMaxNoteBytes;

  struct Content {
    std::uint64_t number;
    std::string text;
  };

  /// One thread at a time.
  void write(std::uint64_t number, std::string_view text);

  /// Nothing before the first write(), or where writes leave no time to read.
  [[nodiscard]] std::optional<Content> read() const;

 private:
  static constexpr std::size_t kWords = kMaxBytes / sizeof(std::uint64_t);

  // Odd while the rest changes. What is read between two looks that see the same even one belongs
  // together: each store is a release and each load an acquire, so they keep their order.
  std::atomic<std::uint64_t> version_;
  std::atomic<std::uint64_t> number_;
  std::atomic<std::uint64_t> n_bytes_;
  std::array<std::atomic<std::uint64_t>, kWords> words_;
};

}  // namespace unisono::shm
