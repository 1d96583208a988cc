#pragma once

#include <sys/mman.h>

#include <cstddef>

namespace unisono::crash {

/// A stack for the handlers of the thread that it is given to, which owns it. A page that nobody
/// may touch lies below it.
class AlternateStack {
 public:
  AlternateStack() = default;

  /// On that thread. Handlers run on the thread's own stack again.
  ~AlternateStack();

  AlternateStack(const AlternateStack&) = delete;
  AlternateStack& operator=(const AlternateStack&) = delete;
  AlternateStack(AlternateStack&&) = delete;
  AlternateStack& operator=(AlternateStack&&) = delete;

  /// Does nothing where the thread has such a stack, or there is no memory.
  void give_to_this_thread();

 private:
  // The child of a crash looks up names on it, too. Pages are taken when first used.
  static constexpr std::size_t kBytes = 1 << 20;

  [[nodiscard]] void* usable() const;

  void* memory_ = MAP_FAILED;
};

}  // namespace unisono::crash
