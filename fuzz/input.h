#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

namespace unisono::fuzz {

/// The bytes of libFuzzer, read from the front. The first bytes select the action of the target,
/// and the code under test gets the rest. An input that is too short continues with zeros.
class Input {
 public:
  Input(const std::uint8_t* data, std::size_t size) : rest_(std::as_bytes(std::span(data, size))) {}

  [[nodiscard]] std::uint8_t take_u8() {
    const std::span<const std::byte> byte = take(1);
    return byte.empty() ? std::uint8_t{0} : std::to_integer<std::uint8_t>(byte.front());
  }

  /// Takes at most `n_bytes` bytes.
  [[nodiscard]] std::span<const std::byte> take(std::size_t n_bytes) {
    const std::span<const std::byte> taken = rest_.first(std::min(n_bytes, rest_.size()));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }

  [[nodiscard]] std::span<const std::byte> rest() const { return rest_; }

 private:
  std::span<const std::byte> rest_;
};

}  // namespace unisono::fuzz

/// Called by libFuzzer for each input.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
