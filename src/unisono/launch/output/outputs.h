#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/deadline.h"
#include "unisono/base/fd.h"
#include "unisono/launch/output/console.h"
#include "unisono/launch/output/lines.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/output/stream_selection.h"
#include "unisono/net/event_loop.h"

namespace unisono::launch {

/// Presentation of a rank's output.
struct OutputStyle {
  bool is_shown = true;     ///< False: the output is not shown.
  std::string prefix = {};  ///< Written before each line.
  bool is_raw = false;      ///< Bytes are passed on unchanged, for a single rank.
  /// Unfinished lines are shown at once; the destination is a terminal.
  bool is_interactive = false;
  /// Receives the lines instead of the console, if set. An unfinished line arrives in parts.
  std::function<void(Source source, std::string_view text)> on_line = nullptr;
};

/// Reads one stream of one rank and passes the text to console, log file and tail.
///
/// Lines are passed on when they are complete. A progress bar has no newline for a long time, so a
/// part of an unfinished line is passed on after a second. The part up to the last carriage return
/// is passed on at once, unless that would interrupt the row of another source.
///
/// Outputs owns the object. All functions run on the loop's thread. A log file that cannot be
/// written is reported once, to `on_error`.
class WorkerOutput {
 public:
  /// Receives the name of the destination that could not be written, and errno.
  using OnError = std::function<void(const std::string& what, int error_number)>;
  using OnLine = decltype(OutputStyle::on_line);

  /// `console` and `tail` must outlive the object.
  WorkerOutput(Source source, OutputStyle style, Console& console, Tail& tail, OnError on_error);

  /// Writes each byte to this file as well, after the present contents if `appends`. Throws
  /// Error(kSystem) if the file cannot be opened.
  void log_to(const std::string& path, bool appends);

  void set_prefix(const std::string& prefix) { style_.prefix = prefix; }

  /// Creates the pipe, or a terminal with the size of `terminal_fd`, and returns the rank's end.
  /// Throws Error(kSystem).
  [[nodiscard]] Fd open(int terminal_fd);

  [[nodiscard]] int fd() const { return read_end_.get(); }

  [[nodiscard]] const Source& source() const { return source_; }

  [[nodiscard]] OutputStream stream() const { return source_.stream; }

  /// Returns the time at which pass_on_part() is due.
  [[nodiscard]] Deadline part_deadline() const { return part_deadline_; }

  /// Passes on the present part of an unfinished line.
  void pass_on_part();

  /// Reads once. Returns false if no bytes are available or the stream has ended.
  bool read_some();

  [[nodiscard]] bool at_end() const { return at_end_; }

  /// Passes on an unfinished last line and closes the read end.
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
  std::uint64_t passed_until_ = 0;  // Offset in the stream, in or after the unfinished line.
  Deadline part_deadline_ = Deadline::never();
  bool at_end_ = false;
};

/// Options of the user for the output.
struct OutputOptions {
  int n_workers = 1;
  bool prefix = false;     ///< "[rank 3] " before each line, or "[alpha:3] ".
  bool collapses = false;  ///< Equal lines of several ranks are merged.
  LineFormat format = {};
  std::string log_dir;  ///< Empty: no log files.
  OutputTargets targets = {};
};

/// Passes the output of a node's ranks from their pipes to the launcher's stdout and stderr.
///
/// The Agent owns the object for the whole job; each generation opens new pipes. All functions run
/// on the loop's thread. Errors of log files go to `on_error`, errors of stdout and stderr to the
/// callback of the sinks.
class Outputs {
 public:
  /// Creates the folder for log files. `loop` must outlive the object. `on_error` is called for log
  /// files that cannot be written. Throws Error(kSystem) if the folder cannot be created.
  Outputs(net::EventLoop& loop,
          const OutputOptions& options,
          Sinks sinks,
          WorkerOutput::OnError on_error);

  Outputs(const Outputs&) = delete;
  Outputs& operator=(const Outputs&) = delete;
  Outputs(Outputs&&) = delete;
  Outputs& operator=(Outputs&&) = delete;
  ~Outputs();

  /// Write ends of a rank's stdout and stderr.
  struct Ends {
    Fd out;
    Fd err;
  };

  /// Sets the numbers of the ranks that follow, for prefixes and log files. Creates the log files,
  /// or appends to files that this object has created before. Throws Error(kSystem).
  void name_ranks(int first_rank);

  /// Opens the pipes of a rank that starts or restarts. Throws Error(kSystem).
  [[nodiscard]] Ends open(int local_rank);

  /// Called after each round of the loop. Writes the collected text, and stops reading from ranks
  /// while the launcher's reader is slow.
  void flush();

  /// Returns the time at which flush() must be called again at the latest.
  [[nodiscard]] Deadline deadline() const;

  /// Passes on the rest of all pipes. All write ends must be closed.
  void drain();

  [[nodiscard]] bool is_flushed() const {
    return sinks_.out->backlog() == 0 && sinks_.err->backlog() == 0;
  }

  /// Copies the size of the launcher's terminal to the terminals of the ranks.
  void resize();

  /// Writes `text` to stderr, with "[unisono run] " or "[unisono run on alpha] " before each line.
  void message(std::string_view text);

  /// Returns the lines of a rank that a report repeats: the last lines, or a single line if all
  /// lines have been shown.
  [[nodiscard]] std::deque<std::string> last_lines(int local_rank) const;

 private:
  struct Worker {
    Tail tail;
    std::vector<std::unique_ptr<WorkerOutput>> streams;
  };

  void add_stream(Worker& worker, int local_rank, OutputStream stream);
  [[nodiscard]] bool has_plain_lines() const;
  void take_line(Source source, std::string_view text);
  void put_line(std::span<const int> ranks, OutputStream stream, std::string_view text);
  void on_readable(WorkerOutput& output);
  void watch(WorkerOutput& output);
  void unwatch(const WorkerOutput& output);
  void throttle(OutputStream stream, bool& is_paused);

  [[nodiscard]] Sink& sink(OutputStream stream) {
    return *(stream == OutputStream::kOut ? sinks_.out : sinks_.err);
  }

  net::EventLoop& loop_;
  OutputOptions options_;
  std::optional<int> first_rank_;
  std::set<std::string> log_files_;  // Log files that this object has created.
  WorkerOutput::OnError on_error_;
  Sinks sinks_;
  Console console_;
  std::optional<LineCollapser> collapser_;
  bool out_paused_ = false;
  bool err_paused_ = false;
  std::set<int> watched_;
  std::deque<Worker> workers_;  // A deque, because the streams hold references to a worker's tail.
};

}  // namespace unisono::launch
