#pragma once

#include <chrono>

namespace unisono::launch {

/// How both sides of a connection notice that the other one is gone where nothing else says so.
struct KeepAlive {
  std::chrono::milliseconds interval = std::chrono::seconds(5);
  int max_attempts = 3;  ///< Intervals without a word before the other side counts as lost.

  [[nodiscard]] std::chrono::milliseconds longest_silence() const {
    return interval * max_attempts;
  }
};

}  // namespace unisono::launch
