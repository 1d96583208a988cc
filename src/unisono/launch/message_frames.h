#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

namespace unisono::launch {

/// Puts a message's bytes behind what a stream still has to send, with their length (u32, which
/// does not count itself) in front.
inline void append_frame(std::vector<std::byte>& stream, std::span<const std::byte> body) {
  const auto length = static_cast<std::uint32_t>(body.size());
  const std::size_t begin = stream.size();
  stream.resize(begin + sizeof length + body.size());
  std::memcpy(stream.data() + begin, &length, sizeof length);
  std::memcpy(stream.data() + begin + sizeof length, body.data(), body.size());
}

/// Takes a stream of such messages apart.
class FrameReader {
 public:
  explicit FrameReader(std::size_t max_message_bytes) : max_message_bytes_(max_message_bytes) {}

  void feed(std::span<const std::byte> bytes) {
    input_.erase(input_.begin(), input_.begin() + static_cast<std::ptrdiff_t>(begin_));
    begin_ = 0;
    input_.insert(input_.end(), bytes.begin(), bytes.end());
  }

  /// The next message that is whole, valid until feed(). Nothing: there is none, or never will be.
  [[nodiscard]] std::optional<std::span<const std::byte>> next() {
    std::uint32_t length = 0;
    if (is_broken_ || input_.size() - begin_ < sizeof length) {
      return std::nullopt;
    }
    std::memcpy(&length, input_.data() + begin_, sizeof length);
    is_broken_ = length > max_message_bytes_;
    if (is_broken_ || input_.size() - begin_ - sizeof length < length) {
      return std::nullopt;
    }
    const auto body = std::span(input_).subspan(begin_ + sizeof length, length);
    begin_ += sizeof length + length;
    return body;
  }

  /// What came is longer than any message.
  [[nodiscard]] bool is_broken() const { return is_broken_; }

 private:
  std::size_t max_message_bytes_;
  std::vector<std::byte> input_;
  std::size_t begin_ = 0;  // Of what next() has not handed out.
  bool is_broken_ = false;
};

}  // namespace unisono::launch
