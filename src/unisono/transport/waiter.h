#pragma once

#include <sched.h>

#include <cstdint>

#include "unisono/base/spin.h"

namespace unisono::transport {

/// How a wait looks before it sleeps.
struct WaitMode {
  int n_spins;   ///< Looks in a tight loop, some 40 ns each.
  int n_yields;  ///< Looks in a row, with a sched_yield in between, some 500 ns each.
};

/// Of a thread in a call. Where not each rank of the node has a core, who waits gives way at once.
[[nodiscard]] constexpr WaitMode calling_wait(bool has_cores) {
  return {.n_spins = has_cores ? SpinLimit::kMost : 1, .n_yields = 200};
}

/// The thread runs beside the rank's computation, or a look costs a system call.
inline constexpr WaitMode kBriefWait{.n_spins = 1, .n_yields = 20};

/// Result of one poll of the awaited condition.
enum class Look : std::uint8_t {
  kNothing,
  kProgress,  ///< A part of it: more may follow at once.
  kDone
};

/// Polls in a tight loop, `n_spins` times or until `look` returns kDone. Returns how many polls
/// came before that one.
template <class LookFunction>
int spin(int n_spins, LookFunction look) {
  for (int n = 0; n < n_spins; ++n) {
    if (n > 0) {
      pause_briefly();
    }
    if (look() == Look::kDone) {
      return n;
    }
  }
  return n_spins;
}

/// Returns when `look` or `sleep` has returned kDone: every wait of a rank for others in an
/// operation or message is this one.
///
/// `sleep` announces a sleep to who can end it, looks once more, has a WaitMonitor check whether
/// the wait may go on, and sleeps, until the monitor's next check at most. After kNothing it is
/// called again; after kProgress looks with yields come first. `spin_limit` learns from waits that
/// did not sleep; null where a wait tells nothing of later ones.
///
/// Throws what `look` and `sleep` throw.
template <class LookFunction, class SleepFunction>
void wait(WaitMode mode, SpinLimit* spin_limit, LookFunction look, SleepFunction sleep) {
  if (const int n_vain = spin(mode.n_spins, look); n_vain < mode.n_spins) {
    if (n_vain > 0 && spin_limit != nullptr) {
      spin_limit->note_spun();
    }
    return;
  }
  for (bool has_slept = false;; has_slept = true) {
    for (int n_yields = 0; n_yields < mode.n_yields;) {
      const Look seen = look();
      if (seen == Look::kDone) {
        if (!has_slept && spin_limit != nullptr) {
          spin_limit->note_yielded(n_yields);
        }
        return;
      }
      if (seen == Look::kProgress) {
        n_yields = 0;
      } else {
        ::sched_yield();
        ++n_yields;
      }
    }
    Look seen = sleep();
    while (seen == Look::kNothing) {
      seen = sleep();
    }
    if (seen == Look::kDone) {
      return;
    }
  }
}

}  // namespace unisono::transport
