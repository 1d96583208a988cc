#pragma once

#include <signal.h>

#include <initializer_list>
#include <optional>

#include "unisono/base/fd.h"

namespace unisono::launch {

/// A signal that this process has received.
struct CaughtSignal {
  int number = 0;
  bool is_from_terminal = false;  ///< Sent for a key or a hang-up, not by a process.
};

/// Signals of this process as a descriptor that an event loop can watch.
///
/// The signals stay blocked when the object is gone: one that is still pending must not end the
/// process on its way out.
class SignalFd {
 public:
  /// Delivers `caught`; `blocked` are only held back. Signals that the process was told to ignore
  /// (nohup, a shell's background job) stay ignored, except SIGCHLD.
  SignalFd(std::initializer_list<int> caught, std::initializer_list<int> blocked);

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// The next signal that came, if any.
  [[nodiscard]] std::optional<CaughtSignal> next();

  /// The mask that the process had before: what its children are to get.
  [[nodiscard]] const sigset_t& original_mask() const { return original_mask_; }

 private:
  Fd fd_;
  sigset_t original_mask_{};
};

/// "SIGTERM" for 15.
[[nodiscard]] const char* signal_name(int signal_number);

}  // namespace unisono::launch
