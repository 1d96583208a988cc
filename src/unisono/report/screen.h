#pragma once

#include <cstddef>
#include <string>
#include <string_view>

#include "unisono/base/fd.h"
#include "unisono/base/log.h"

namespace unisono::report {

/// Stdout or stderr as a place for lines, and on a terminal for one bar below them. Nobody who
/// reads there can stop a training: a reader that takes nothing is waited for a second, once; one
/// that is gone makes no signal, and is logged once.
///
/// A terminal has one bar: while another Screen has it, of this process or another, there is none.
/// One thread at a time.
class Screen {
 public:
  Screen(int fd, bool wants_bar, Logger logger);
  ~Screen();

  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;
  Screen(Screen&&) = delete;
  Screen& operator=(Screen&&) = delete;

  [[nodiscard]] bool has_bar() const { return has_bar_; }

  /// A terminal has, unless NO_COLOR is set.
  [[nodiscard]] bool has_colour() const { return has_colour_; }

  /// As wide as it is now.
  [[nodiscard]] std::size_t n_columns() const;

  /// In the place of the bar that is there. Left out where the reader is slow.
  void draw_bar(std::string_view text);

  void clear_bar();

  /// `line` has its "\n". It takes the place of the bar.
  void print(std::string_view line);

 private:
  enum class Patience { kNone, kSome };
  void write(std::string_view text, Patience patience);
  void fail(int error_number);

  int fd_;     // as stdio knows it
  Fd output_;  // the same for us, whoever closes the other; closed once a write has failed
  Logger logger_;
  bool is_terminal_;
  bool has_bar_ = false;
  bool has_colour_;
  bool is_bar_drawn_ = false;
  bool is_reader_slow_ = false;
  bool is_line_cut_ = false;
};

}  // namespace unisono::report
