#pragma once

#include <signal.h>

#include <initializer_list>
#include <optional>

#include "unisono/base/fd.h"

namespace unisono::launch {

/// A signal that this process has received.
struct CaughtSignal {
  int number = 0;
  bool is_from_terminal = false;  ///< Caused by a key or a hang-up, not sent by a process.
};

/// Delivers signals of this process through a descriptor that an event loop can watch.
///
/// The signals stay blocked after the destructor, so that a pending signal does not end the process
/// during its shutdown. Create the object before other threads, which inherit the mask. The
/// constructor throws Error(kSystem).
class SignalFd {
 public:
  /// Delivers the signals in `caught` and only blocks the signals in `blocked`. Signals that the
  /// process ignores (nohup, background job of a shell) stay ignored, except SIGCHLD.
  SignalFd(std::initializer_list<int> caught, std::initializer_list<int> blocked);

  [[nodiscard]] int fd() const { return fd_.get(); }

  /// Returns the next signal, or std::nullopt if no signal has arrived.
  [[nodiscard]] std::optional<CaughtSignal> next();

  /// Returns the mask of the process before the constructor, which its children must get.
  [[nodiscard]] const sigset_t& original_mask() const { return original_mask_; }

 private:
  Fd fd_;
  sigset_t original_mask_{};
};

/// Returns the name of a signal, "SIGTERM" for 15.
[[nodiscard]] const char* signal_name(int signal_number);

}  // namespace unisono::launch
