#pragma once

#include <chrono>
#include <cstddef>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"

namespace unisono {

/// A logger for what strangers can cause as often as they like: of more than `most` lines in a
/// `period` the rest is left out, and the first line after it says how many that were. One thread
/// at a time.
class LimitedLogger {
 public:
  using Time = Deadline::Clock::time_point;

  explicit LimitedLogger(Logger logger,
                         std::size_t most = 100,
                         std::chrono::seconds period = std::chrono::seconds(10));

  /// For what strangers can't cause: without a limit.
  void debug(std::string_view text) const { logger_.debug(text); }

  void warning(std::string_view text, Time now = Deadline::Clock::now());

 private:
  Logger logger_;
  std::size_t most_;
  std::chrono::seconds period_;
  Time begin_{};
  std::size_t n_lines_ = 0;  // Since `begin_`, with those left out.
};

}  // namespace unisono
