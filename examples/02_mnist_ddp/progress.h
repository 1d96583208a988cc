#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace mnist {

/// Shows how far an epoch is: a bar that is drawn anew on a terminal, nothing elsewhere. Draws at
/// most ten times a second.
class Progress {
 public:
  /// `is_shown`: whether this rank shows anything at all.
  Progress(bool is_shown, int epoch, int n_epochs, std::int64_t n_steps);

  void update(std::int64_t step, double loss, double images_per_second);

  /// Removes the bar, so that a line can be printed in its place.
  void clear();

 private:
  bool is_terminal_;
  bool has_color_;
  std::string title_;
  std::int64_t n_steps_;
  std::chrono::steady_clock::time_point next_draw_;
};

}  // namespace mnist
