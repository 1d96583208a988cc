#pragma once

namespace unisono::cli::doctor {

/// What was measured between two ranks.
struct Link {
  int from = 0;
  int to = 0;
  double latency = 0;    ///< Seconds that a small message takes: half a round trip, the median.
  double bandwidth = 0;  ///< Bytes per second of large messages, the median.
  double bandwidth_back = 0;     ///< The same from `to` to `from`.
  double clock_difference = 0;   ///< Seconds by which the clock of `to` is ahead.
  double clock_uncertainty = 0;  ///< It may be off by so much either way.

  friend bool operator==(const Link&, const Link&) = default;
};

}  // namespace unisono::cli::doctor
