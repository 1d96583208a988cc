#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "unisono/base/deadline.h"

namespace unisono::crash {

/// A text that a signal handler puts together: takes no memory. What is too long is cut.
class SafeText {
 public:
  SafeText& add(std::string_view text);
  SafeText& add_decimal(std::uint64_t number);
  /// With "0x" before it.
  SafeText& add_hex(std::uint64_t number);

  [[nodiscard]] std::string_view view() const { return {bytes_.data(), size_}; }

 private:
  SafeText& add_number(std::uint64_t number, std::uint64_t base);

  std::array<char, 1024> bytes_{};
  std::size_t size_ = 0;
};

/// Writes to stderr; false if that did not take all until the deadline. Async-signal-safe.
bool write_to_stderr(std::string_view text, Deadline deadline);

}  // namespace unisono::crash
