#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace unisono {

/// Where a thread of this process is.
struct ThreadStack {
  int thread = 0;    ///< Its number in the kernel.
  std::string name;  ///< As pthread_setname_np() set it.
  /// Innermost first, e.g. "train(int) in /opt/job/train(+0x1a2b)"; empty when `problem` says why.
  std::vector<std::string> frames;
  std::string problem;
};

/// The stacks of this process's threads, save the caller's own, the first thread first, at most
/// `max_threads`.
///
/// Each thread is interrupted for some microseconds by a real-time signal that the program has no
/// use for; its handler is installed with the first call and stays. As with any signal, system
/// calls that are not restarted by themselves (poll, nanosleep) return EINTR. A thread that blocks
/// the signal, or does not take it within a quarter of a second, has a problem instead of frames.
///
/// Thread-safe; one caller at a time.
[[nodiscard]] std::vector<ThreadStack> take_stacks(std::size_t max_threads);

}  // namespace unisono
