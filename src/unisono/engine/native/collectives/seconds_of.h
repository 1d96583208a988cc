#pragma once

#include <chrono>

namespace unisono::engine {

/// How long `action` takes.
template <class Action>
[[nodiscard]] double seconds_of(Action action) {
  const auto start = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace unisono::engine
