#pragma once

#include <chrono>
#include <span>
#include <string>

#include "unisono/base/deadline.h"
#include "unisono/launch/process/signals.h"

namespace unisono::launch {

/// The time that ranks have for their end, from the signal that asks for it to SIGKILL, and what
/// the user reads about it. One thread.
class GracePeriod {
 public:
  explicit GracePeriod(std::chrono::milliseconds length) : length_(length) {}

  /// The ranks get this signal now. Returns when the period is over.
  [[nodiscard]] Deadline begin(int signal_number);

  /// No rank is waited for any more.
  void end() { notice_deadline_ = Deadline::never(); }

  /// To be called with each signal that the launcher gets. True for a second Ctrl-C of a terminal:
  /// a second signal that a process has sent shortens nothing, as supervisors send several.
  [[nodiscard]] bool is_cut_short_by(const CaughtSignal& signal);

  /// When take_notice() is due.
  [[nodiscard]] Deadline notice_deadline() const { return notice_deadline_; }

  /// Returns, once in a period, a line about the ranks that take long, and about the signal that
  /// they get behind it.
  [[nodiscard]] std::string take_notice(std::span<const int> ranks, int next_signal);

  /// The line about ranks that are killed as the period is over; empty for none.
  [[nodiscard]] std::string describe_expiry(std::span<const int> ranks) const;

  /// The line about ranks that are killed because of the second Ctrl-C; empty for none.
  [[nodiscard]] std::string describe_cut(std::span<const int> ranks) const;

 private:
  std::chrono::milliseconds length_;
  int signal_number_ = 0;
  Deadline::Clock::time_point since_;
  Deadline notice_deadline_ = Deadline::never();
  int n_interrupts_ = 0;  // From a terminal.
};

/// The line about ranks that are killed, as they have not ended for so long after that signal;
/// empty for none. `remedy` is how a user sets the time.
[[nodiscard]] std::string describe_killed(std::span<const int> ranks,
                                          std::chrono::milliseconds grace,
                                          int signal_number,
                                          const std::string& remedy);

/// Until when a launcher whose ranks have ended waits for the reader of its output, once it gets
/// such a signal: a user who types Ctrl-C wants it to end now.
[[nodiscard]] Deadline output_deadline(const CaughtSignal& signal, std::chrono::milliseconds grace);

}  // namespace unisono::launch
