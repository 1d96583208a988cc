#pragma once

#include <algorithm>
#include <atomic>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace unisono {

/// Between two looks at what another core is to write: leaves the core's units to its sibling.
inline void pause_briefly() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

/// How often a wait looks in a tight loop before it yields the core, learned from the waits before
/// it. Falls where yielding is what brings the peers: they are waiting for this core. Any thread.
class SpinLimit {
 public:
  /// A meeting of ranks that have a core each.
  static constexpr int kLeast = 32;
  /// Half of what a sleep and its end cost.
  static constexpr int kMost = 2000;

  [[nodiscard]] int n_spins() const { return n_spins_.load(std::memory_order_relaxed); }

  /// The peers came while this thread spun. Not for peers that were there at once: that tells
  /// nothing, and happens every other time on a shared core.
  void note_spun() { set(std::min(2 * n_spins(), kMost)); }

  /// The peers came after so many yields. A few have brought them; where it took more, or none,
  /// they run on cores of their own, and it could as well have spun.
  void note_yielded(int n_yields) {
    if (n_yields >= 1 && n_yields <= kFewYields) {
      set(std::max(n_spins() / 2, kLeast));
    } else {
      note_spun();
    }
  }

 private:
  static constexpr int kFewYields = 4;

  void set(int n_spins) { n_spins_.store(n_spins, std::memory_order_relaxed); }

  std::atomic<int> n_spins_ = kMost;
};

}  // namespace unisono
