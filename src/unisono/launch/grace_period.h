#pragma once

#include <chrono>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/launch/process/signals.h"

namespace unisono::launch {

/// The time that ranks have to end, from the first signal until SIGKILL, and the lines about that
/// time for the user. Not thread-safe.
class GracePeriod {
 public:
  explicit GracePeriod(std::chrono::milliseconds length) : length_(length) {}

  /// Starts the period: the ranks receive `signal_number` now. Returns the end of the period.
  [[nodiscard]] Deadline begin(int signal_number);

  /// Ends the period: the launcher waits for no rank any more.
  void end() { notice_deadline_ = Deadline::never(); }

  /// Called with each signal that the launcher receives. Returns true for a second Ctrl-C in a
  /// terminal. A second signal from another process does not shorten the period, because
  /// supervisors send several signals.
  [[nodiscard]] bool is_cut_short_by(const CaughtSignal& signal);

  /// Returns the time at which take_notice() is due.
  [[nodiscard]] Deadline notice_deadline() const { return notice_deadline_; }

  /// Returns a line about the ranks that take long and about the signal that follows. Clears
  /// notice_deadline(), so that each period has one such line.
  [[nodiscard]] std::string take_notice(std::span<const int> ranks, int next_signal);

  /// Returns the line about ranks that are killed because the period is over; empty if there are no
  /// such ranks.
  [[nodiscard]] std::string describe_expiry(std::span<const int> ranks) const;

  /// Returns the line about ranks that are killed because of a second Ctrl-C; empty if there are no
  /// such ranks.
  [[nodiscard]] std::string describe_cut(std::span<const int> ranks) const;

 private:
  std::chrono::milliseconds length_;
  int signal_number_ = 0;
  Deadline::Clock::time_point since_;
  Deadline notice_deadline_ = Deadline::never();
  int n_interrupts_ = 0;  // Ctrl-C signals from a terminal.
};

/// Returns the line about ranks that are killed because they have not ended within `grace` after
/// `signal_number`; empty if there are no such ranks. `remedy` describes how a user sets the time.
[[nodiscard]] std::string describe_killed(std::span<const int> ranks,
                                          std::chrono::milliseconds grace,
                                          int signal_number,
                                          const std::string& remedy);

/// Returns the deadline of a launcher that waits for the reader of the output after the ranks have
/// ended and `signal` has arrived. Ctrl-C in a terminal ends the wait at once.
[[nodiscard]] Deadline output_deadline(const CaughtSignal& signal, std::chrono::milliseconds grace);

}  // namespace unisono::launch
