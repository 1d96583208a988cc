#include "unisono/transport/shm/seqlock_text.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/utf8.h"

namespace unisono::shm {

void SeqlockText::write(std::uint64_t number, std::string_view text) {
  text = utf8_prefix(text, kMaxBytes);
  std::array<std::uint64_t, kWords> words{};
  std::memcpy(words.data(), text.data(), text.size());
  const std::uint64_t version = version_.load(std::memory_order_relaxed);
  version_.store(version + 1, std::memory_order_release);
  number_.store(number, std::memory_order_release);
  n_bytes_.store(text.size(), std::memory_order_release);
  for (std::size_t i = 0; i < kWords; ++i) {
    words_[i].store(words[i], std::memory_order_release);
  }
  version_.store(version + 2, std::memory_order_release);
}

std::optional<SeqlockText::Content> SeqlockText::read() const {
  constexpr int kTries = 100;
  for (int n = 0; n < kTries; ++n) {
    const std::uint64_t version = version_.load(std::memory_order_acquire);
    if (version == 0) {
      return std::nullopt;
    }
    const std::uint64_t number = number_.load(std::memory_order_acquire);
    // Another process wrote it.
    const std::size_t n_bytes =
        std::min<std::size_t>(n_bytes_.load(std::memory_order_acquire), kMaxBytes);
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t i = 0; i < kWords; ++i) {
      words[i] = words_[i].load(std::memory_order_acquire);
    }
    if (version % 2 == 0 && version_.load(std::memory_order_acquire) == version) {
      return Content{.number = number,
                     .text = {reinterpret_cast<const char*>(words.data()), n_bytes}};
    }
  }
  return std::nullopt;
}

}  // namespace unisono::shm
