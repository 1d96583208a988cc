#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/report/progress.h"

namespace unisono::report {

/// Measures rates over about the last 30 seconds. Not thread-safe.
class RateMeter {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit RateMeter(Time start);

  /// Notes the totals since the start.
  void note(Time now, std::int64_t n_steps, std::int64_t n_samples);

  struct Rates {
    double steps_per_second = 0;
    double samples_per_second = 0;
  };

  /// Returns the rates until `now`; zeros before the first step.
  [[nodiscard]] Rates rates(Time now) const;

 private:
  struct Mark {
    Time time;
    std::int64_t n_steps = 0;
    std::int64_t n_samples = 0;
  };

  std::deque<Mark> marks_;  // A second apart, the oldest first.
  Mark last_;
};

/// Progress of a training.
struct ProgressState {
  std::string title = {};
  std::string unit = {};
  std::int64_t step = 0;
  std::int64_t total = 0;      // 0 if unknown
  std::int64_t n_steps = 0;    // since the reporter began
  std::int64_t n_samples = 0;  // since the reporter began
  double seconds = 0;          // since the reporter began
  double steps_per_second = 0;
  double samples_per_second = 0;
  std::vector<NamedValue> values = {};
};

/// Returns a text of at most `n_columns` columns: "epoch 1/3  ████░░░░  50% 210/420  5120 samples/s
/// 0:03 left  loss 0.3127". Omits trailing parts that do not fit beside the bar.
[[nodiscard]] std::string bar_text(const ProgressState& state, std::size_t n_columns, bool colours);

/// Returns a line without a bar.
[[nodiscard]] std::string line_text(const ProgressState& state);

/// Returns the last line: "epoch 1/3: 420 of 420 steps in 6.2 s, 5120 samples/s, loss 0.3".
[[nodiscard]] std::string end_text(const ProgressState& state);

/// Returns a text such as "6.2 s", "1:02" or "3:01:02".
[[nodiscard]] std::string duration_text(double seconds);

/// Returns the text with '?' for control characters, which could move a terminal's cursor, and for
/// invalid UTF-8.
[[nodiscard]] std::string printable(std::string_view text);

/// Returns the state as a JSON object in one line, with "\n". NaN and infinities, which JSON lacks,
/// become the strings "NaN", "Infinity" and "-Infinity".
[[nodiscard]] std::string json_line(const ProgressState& state, int rank, double unix_seconds);

}  // namespace unisono::report
