#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "unisono/base/deadline.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {

/// A line of output, without the newline.
struct Line {
  std::string_view text;     ///< Valid until the splitter is fed again.
  std::uint64_t offset = 0;  ///< Offset of text[0] in the stream.
  bool is_cut = false;       ///< The size limit ended the line, not a newline.
};

/// Appended to a line that was cut.
inline constexpr std::string_view kCutMark = " [unisono: line cut here]";

/// Returns the last state of a line that overwrites itself, without carriage returns.
[[nodiscard]] std::string_view last_frame(std::string_view text);

/// Cuts a stream of bytes into lines.
///
/// A line that grows beyond `max_bytes` is cut. If such a line contains carriage returns (a
/// progress bar), the text before the last carriage return is dropped instead. Not thread-safe.
class LineSplitter {
 public:
  explicit LineSplitter(std::size_t max_bytes) : max_bytes_(max_bytes) {}

  /// Calls `on_line` for each line that `bytes` completes.
  void feed(std::string_view bytes, const std::function<void(const Line&)>& on_line);

  /// Returns the text since the last complete line.
  [[nodiscard]] Line partial() const { return {pending_, offset_, false}; }

  /// Drops the partial line.
  void clear();

 private:
  void emit(bool is_cut, const std::function<void(const Line&)>& on_line);
  void make_room(const std::function<void(const Line&)>& on_line);

  std::size_t max_bytes_;
  std::string pending_;
  std::uint64_t offset_ = 0;
};

/// The last lines of a rank, for the report of a failure. Not thread-safe.
class Tail {
 public:
  void add(std::string_view line) {
    line = last_frame(line);
    // LibTorch lists the addresses of the stack after the message of an exception.
    if (line.starts_with("frame #") || line.starts_with("Exception raised from ")) {
      return;
    }
    if (lines_.size() == kMaxLines) {
      lines_.pop_front();
    }
    lines_.emplace_back(line.substr(0, kMaxLineBytes));
  }

  void clear() { lines_.clear(); }

  [[nodiscard]] const std::deque<std::string>& lines() const { return lines_; }

  /// Returns the most informative of the last lines, or an empty list if there is no line. This is
  /// the last line that is neither blank nor indented, such as the exception below a traceback or
  /// the signal above a stack; otherwise the last line.
  [[nodiscard]] std::deque<std::string> headline() const {
    for (auto line = lines_.rbegin(); line != lines_.rend(); ++line) {
      if (!line->empty() && line->front() != ' ' && line->front() != '\t') {
        return {*line};
      }
    }
    return lines_.empty() ? lines_ : std::deque{lines_.back()};
  }

 private:
  static constexpr std::size_t kMaxLines = 20;
  static constexpr std::size_t kMaxLineBytes = 1000;

  std::deque<std::string> lines_;
};

/// Format of the launcher's own lines and of the lines of ranks.
struct LineFormat {
  bool is_json = false;  ///< A JSON object for each line, with the time.
  /// Name of this machine; empty unless the output of several machines is merged.
  std::string host = {};
  /// Prefix of a rank's line in torchrun's form, "[${role_name}${local_rank}]:". Empty: the default
  /// prefix.
  std::string prefix_template = {};
  std::string role = {};  ///< Value of role_name in the template.

  friend bool operator==(const LineFormat&, const LineFormat&) = default;
};

/// Returns the prefix of a rank's lines: "[rank 3] ", "[alpha:3] ", or the template with the known
/// names replaced.
[[nodiscard]] std::string rank_prefix(const LineFormat& format,
                                      int rank,
                                      int local_rank,
                                      bool has_colour);

/// Returns a line that several ranks have written: "[0-2,7] text", with a newline.
[[nodiscard]] std::string format_collapsed(const LineFormat& format,
                                           std::span<const int> ranks,
                                           std::string_view text,
                                           bool has_colour);

/// Returns a line as JSON, with a newline: {"time": "2024-05-06T07:08:09.123456Z", "host": "alpha",
/// "rank": 3, "stream": "stdout", "text": "..."}, or "ranks": [0, 1] for several ranks. Bytes that
/// are not UTF-8 are replaced.
[[nodiscard]] std::string format_json(const LineFormat& format,
                                      std::span<const int> ranks,
                                      OutputStream stream,
                                      std::string_view text);

/// Returns the launcher's own text with "[unisono run] " or "[unisono run on alpha] " before each
/// line; as JSON, an object for each line with "source": "launcher".
[[nodiscard]] std::string format_message(const LineFormat& format, std::string_view text);

/// Merges equal lines that several ranks write within 200 ms. The lines of each rank keep their
/// order.
class LineCollapser {
 public:
  using Time = Deadline::Clock::time_point;
  /// Receives the sorted ranks that have written the line.
  using Emit =
      std::function<void(std::span<const int> ranks, OutputStream stream, std::string_view)>;

  /// A line that `n_ranks` ranks have written is emitted at once.
  LineCollapser(std::size_t n_ranks, Emit emit) : n_ranks_(n_ranks), emit_(std::move(emit)) {}

  /// Adds a line of a rank. Emits lines that all ranks have written, and the oldest line if there
  /// are too many.
  void add(int rank, OutputStream stream, std::string_view text, Time now);

  /// Emits the lines that have waited for 200 ms.
  void on_time(Time now);

  /// Emits all lines.
  void flush();

  /// Returns the time at which on_time() is due.
  [[nodiscard]] Deadline deadline() const;

 private:
  struct Entry {
    OutputStream stream;
    std::string text;
    std::set<int> ranks;
    Time since;
  };

  void emit_first();

  std::size_t n_ranks_;
  Emit emit_;
  std::deque<Entry> entries_;
  std::uint64_t n_emitted_ = 0;
  std::map<int, std::uint64_t> next_;  // Of each rank: the first entry, counted from the start,
                                       // that its next line may be.
};

}  // namespace unisono::launch
