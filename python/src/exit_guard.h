#pragma once

namespace unisono::python {

/// Python ends, on this thread: others that wait for operations stay where they are, as they would
/// end the process by std::terminate() on their way back into Python.
void hold_waiting_threads();

/// Where a program's thread comes back from a wait; made first, so that it ends last.
class ExitGuard {
 public:
  ExitGuard() = default;
  ~ExitGuard();

  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
  ExitGuard(ExitGuard&&) = delete;
  ExitGuard& operator=(ExitGuard&&) = delete;
};

}  // namespace unisono::python
