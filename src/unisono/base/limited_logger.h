#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"

namespace unisono {

/// A logger for what strangers can cause as often as they like: of more than `most` lines in a
/// `period` the rest is counted, and one line says how many that were when the period is over and
/// anything is logged, or catch_up() is called. One thread at a time.
class LimitedLogger {
 public:
  using Time = Deadline::Clock::time_point;

  explicit LimitedLogger(Logger logger,
                         std::size_t most = 100,
                         std::chrono::milliseconds period = std::chrono::minutes(1));

  /// For what strangers can't cause: without a limit.
  void debug(std::string_view text) const { logger_.debug(text); }

  void warning(std::string_view text, Time now = Deadline::Clock::now());

  /// When the period is over in which lines were counted, for who wants to call catch_up() then;
  /// nothing where none were.
  [[nodiscard]] std::optional<Time> due() const;

  /// Says how many lines were counted, if any, and begins anew.
  void catch_up(Time now = Deadline::Clock::now());

 private:
  Logger logger_;
  std::size_t most_;
  std::chrono::milliseconds period_;
  Time begin_{};
  std::size_t n_lines_ = 0;  // Since `begin_`, with those counted.
  std::string last_;         // Of those counted.
};

}  // namespace unisono
