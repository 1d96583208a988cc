#pragma once

#include <chrono>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"

namespace unisono::health {

/// How long a process may lack file descriptors before the one that is kept back is used: they may
/// come free.
inline constexpr std::chrono::seconds kFilePatience{3};

/// A file descriptor that is kept back, so that who comes when a process has no other can at least
/// be told.
class FileReserve {
 public:
  using Time = Deadline::Clock::time_point;

  FileReserve();

  /// Notes that there was no descriptor to be had. True if that has been so for kFilePatience and
  /// the one that was kept back is free now.
  [[nodiscard]] bool note_lack(Time now);

  /// Keeps one back again. False if there still is none.
  [[nodiscard]] bool refill();

 private:
  Fd file_;
  Time since_;  // Of a lack that was noted last at `last_`.
  Time last_;
};

}  // namespace unisono::health
