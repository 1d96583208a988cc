#pragma once

namespace unisono::python {

/// Python ends, on this thread: others that wait for operations stay where they are, as they would
/// end the process by std::terminate() on their way back into Python.
void hold_waiting_threads();

/// Where a program's thread comes back from a wait; made first, so that it ends last.
class WayBack {
 public:
  WayBack() = default;
  ~WayBack();

  WayBack(const WayBack&) = delete;
  WayBack& operator=(const WayBack&) = delete;
  WayBack(WayBack&&) = delete;
  WayBack& operator=(WayBack&&) = delete;
};

}  // namespace unisono::python
