#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"

namespace unisono::report {

/// Output of lines to stdout or stderr, with a progress bar below the lines on a terminal.
///
/// The reader cannot block the training: a reader that does not read delays a single write by a
/// second; a closed reader raises no signal and is logged once. A terminal has one bar: while
/// another Screen of any process has the bar, this Screen shows no bar. Not thread-safe.
class Screen {
 public:
  Screen(int fd, bool wants_bar, base::Logger logger);
  ~Screen();

  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  Screen(Screen&&) = delete;
  Screen& operator=(Screen&&) = delete;

  [[nodiscard]] bool has_bar() const { return has_bar_; }

  /// Returns true for a terminal unless NO_COLOR is set.
  [[nodiscard]] bool has_colour() const { return has_colour_; }

  /// Returns the current width.
  [[nodiscard]] std::size_t n_columns() const;

  /// Replaces the current bar. Skips the bar if the reader is slow.
  void draw_bar(std::string_view text);

  /// Removes the bar until the next draw_bar().
  void clear_bar();

  /// Prints `line`, which ends with "\n", in place of the bar.
  void print(std::string_view line);

 private:
  enum class Patience { kNone, kSome };
  void write(std::string_view text, Patience patience);
  void fail(int error_number);

  int fd_;     // descriptor that stdio uses
  Fd output_;  // own descriptor for the same output; closed after a failed write
  base::Logger logger_;
  bool is_terminal_;
  bool has_bar_ = false;
  bool has_colour_;
  bool is_bar_drawn_ = false;
  bool is_reader_slow_ = false;
  bool is_line_cut_ = false;
};

}  // namespace unisono::report
