#pragma once

namespace unisono::python {

/// Called when Python ends, on the thread that ends Python. Other threads that wait for operations
/// are blocked in ExitGuard from now on: a return into Python would end the process by
/// std::terminate().
void hold_waiting_threads();

/// RAII guard in functions that wait on a program's thread. The destructor blocks the thread after
/// hold_waiting_threads(), except for the ending thread and internal threads. Declared first, so
/// that the guard is destroyed last.
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
