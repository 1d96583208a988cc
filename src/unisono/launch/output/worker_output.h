#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/line_splitter.h"
#include "unisono/launch/output/tail.h"

namespace unisono::launch {

/// How a rank's output is to be shown.
struct OutputStyle {
  bool is_shown = true;         ///< At all.
  std::string prefix = {};      ///< Before each line.
  bool is_raw = false;          ///< Bytes as they are: there is one rank only.
  bool is_interactive = false;  ///< Show unfinished lines at once; our side is a terminal.
  /// Gets the lines in place of the console, where there is one; of an unfinished line, parts.
  std::function<void(Source source, std::string_view text)> on_line = nullptr;
};

/// Reads one stream of one rank and hands it to console, log file and tail.
///
/// Lines are handed on whole. A progress bar has no end of line for long, so a part of an
/// unfinished line is passed on after a second, and at once up to its last carriage return, unless
/// that would end the row of another source.
class WorkerOutput {
 public:
  /// Gets what could not be written to, and errno.
  using OnError = std::function<void(const std::string& what, int error_number)>;
  using OnLine = decltype(OutputStyle::on_line);

  /// `console` and `tail` must outlive the object.
  WorkerOutput(Source source, OutputStyle style, Console& console, Tail& tail, OnError on_error);

  /// Also writes every byte to this file, behind what it has or in its place. Throws Error(kSystem)
  /// when it can't be opened.
  void log_to(const std::string& path, bool appends);

  void set_prefix(const std::string& prefix) { style_.prefix = prefix; }

  /// Makes the pipe (or terminal of the size of `terminal_fd`) and returns the rank's end of it.
  [[nodiscard]] Fd open(int terminal_fd);

  [[nodiscard]] int fd() const { return read_end_.get(); }

  [[nodiscard]] const Source& source() const { return source_; }

  [[nodiscard]] Stream stream() const { return source_.stream; }

  /// When pass_on_part() is due.
  [[nodiscard]] Deadline part_deadline() const { return part_deadline_; }

  /// Passes on the part of an unfinished line that is there.
  void pass_on_part();

  /// Reads once. Returns false when nothing is there or nothing more will come.
  bool read_some();

  [[nodiscard]] bool at_end() const { return at_end_; }

  /// Hands on an unfinished last line; no more is read.
  void finish();

 private:
  void take(std::string_view bytes);
  void take_line(const Line& line);
  void take_part();
  void mark_passed(const Line& part);
  void write_log(std::string_view bytes);

  Source source_;
  OutputStyle style_;
  Console& console_;
  Tail& tail_;
  OnError on_error_;
  std::string log_path_;
  Fd log_;
  Fd read_end_;
  LineSplitter lines_;
  std::uint64_t passed_until_ = 0;  // Place in the stream, in or behind the unfinished line.
  Deadline part_deadline_ = Deadline::never();
  bool at_end_ = false;
};

}  // namespace unisono::launch
