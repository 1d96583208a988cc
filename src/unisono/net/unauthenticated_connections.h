#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/base/log.h"

namespace unisono::net {

/// Returns the maximum number of unauthenticated connections of a listener: a quarter of the
/// process's descriptors, at least 16. Clients without the secret must not use up the descriptors
/// that the process and its peers need.
[[nodiscard]] std::size_t max_strangers();

/// Time in which every peer completes the greeting. A listener that needs room may close a slower
/// connection.
inline constexpr std::chrono::seconds kHandshakeTime{2};

/// The connections of a listener that have not completed the handshake, with the caller's ids.
///
/// A connection that has sent no bytes has a time limit of 1 ms for each slot of the listener, at
/// most kHandshakeTime. A peer sends at once after connecting, so that even a thousand silent
/// connections expire within a second.
///
/// The listener owns this object, and closes expired connections if it needs room for new
/// connections. Not thread-safe.
class UnauthenticatedConnections {
 public:
  using Time = Deadline::Clock::time_point;

  /// `most` is the number of connections at which is_full() becomes true.
  explicit UnauthenticatedConnections(std::size_t most = max_strangers());

  void add(std::uint64_t id, Time now);

  /// Records that a connection has sent bytes, which extends its limit to kHandshakeTime from the
  /// start. No effect for an unknown id.
  void note_word(std::uint64_t id);

  /// Removes a connection. Returns false for an unknown id.
  bool remove(std::uint64_t id);

  [[nodiscard]] std::size_t size() const { return stays_.size(); }

  [[nodiscard]] bool is_full() const { return size() >= most_; }

  /// Returns the connection that expired first, std::nullopt if all are within their limits.
  [[nodiscard]] std::optional<std::uint64_t> overdue(Time now) const;

  /// Returns the time at which the next connection expires; Time::max() without connections.
  [[nodiscard]] Time next_due() const;

 private:
  struct Stay {
    Time begin;
    Time end;
  };

  std::size_t most_;
  std::chrono::milliseconds silent_time_;
  std::map<std::uint64_t, Stay> stays_;
  std::set<std::pair<Time, std::uint64_t>> by_end_;
};

/// A rate-limited logger for events that unauthenticated clients can cause at will.
///
/// Warnings beyond `most` in a `period` are only counted. One line reports the count when the next
/// warning after the period is written, or when catch_up() is called. Not thread-safe.
class LimitedLogger {
 public:
  using Time = Deadline::Clock::time_point;

  explicit LimitedLogger(base::Logger logger,
                         std::size_t most = 100,
                         std::chrono::milliseconds period = std::chrono::minutes(1));

  /// Logs without a limit, for events that unauthenticated clients cannot cause.
  void debug(std::string_view text) const { logger_.debug(text); }

  /// Logs a warning, or only counts it if the current period already has `most` warnings.
  void warning(std::string_view text, Time now = Deadline::Clock::now());

  /// Returns the end of the current period if warnings were suppressed, so that the caller can
  /// schedule catch_up(); otherwise std::nullopt.
  [[nodiscard]] std::optional<Time> due() const;

  /// Writes the number of suppressed warnings, if any, and starts a new period.
  void catch_up(Time now = Deadline::Clock::now());

 private:
  base::Logger logger_;
  std::size_t most_;
  std::chrono::milliseconds period_;
  Time begin_{};
  std::size_t n_lines_ = 0;  // Warnings since `begin_`, including suppressed warnings.
  std::string last_;         // The last suppressed warning.
};

}  // namespace unisono::net
