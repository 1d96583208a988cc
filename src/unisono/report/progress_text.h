#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/report/named_value.h"

namespace unisono::report {

/// How far a training is.
struct ProgressState {
  std::string title = {};
  std::string unit = {};
  std::int64_t step = 0;
  std::int64_t total = 0;      // 0: not known
  std::int64_t n_steps = 0;    // made since the reporter began
  std::int64_t n_samples = 0;  // since then
  double seconds = 0;          // since then
  double steps_per_second = 0;
  double samples_per_second = 0;
  std::vector<NamedValue> values = {};
};

/// "epoch 1/3  ████░░░░  50% 210/420  5120 samples/s  0:03 left  loss 0.3127": at most `n_columns`
/// wide. What comes last is left out where there is no room for it and a bar.
[[nodiscard]] std::string bar_text(const ProgressState& state, std::size_t n_columns, bool colours);

/// The same as a line without a bar.
[[nodiscard]] std::string line_text(const ProgressState& state);

/// What is left to say at the end: "epoch 1/3: 420 of 420 steps in 6.2 s, 5120 samples/s, loss
/// 0.3".
[[nodiscard]] std::string end_text(const ProgressState& state);

/// "6.2 s", "1:02", "3:01:02".
[[nodiscard]] std::string duration_text(double seconds);

/// The text without what would move a terminal's cursor, or is no UTF-8.
[[nodiscard]] std::string printable(std::string_view text);

}  // namespace unisono::report
