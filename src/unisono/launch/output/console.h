#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "unisono/base/fd.h"
#include "unisono/launch/output/lines.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {

/// A terminal for a rank's output: the rank writes to `slave`, the launcher reads from `master`.
struct Pty {
  Fd master;
  Fd slave;
};

/// Opens a terminal that passes bytes on unchanged, with the size of the terminal `like_fd` (-1:
/// default size). Throws Error(kSystem).
[[nodiscard]] Pty open_pty(int like_fd);

/// Gives `master` the size of the terminal `like_fd`.
void copy_size(int like_fd, int master);

/// Writes the output of many ranks to the launcher's stdout and stderr without mixing lines.
///
/// A row is an unfinished line that is shown. stdout and stderr have a row each, or a common row if
/// both end in the same place. If another line must be written there, a newline ends the row first.
/// The interrupted line is shown again, from the last carriage return on, when more text of the
/// line arrives.
///
/// Outputs owns the object; both sinks must outlive it. Not thread-safe. The sinks report write
/// errors.
class Console {
 public:
  Console(Sink& out, Sink& err);

  /// Writes a complete line.
  void put_line(Source source, std::string_view prefix, const Line& line);

  /// Shows the present part of an unfinished line.
  void put_partial(Source source, std::string_view prefix, const Line& partial);

  /// Returns true if a part of the source's line can be shown without interrupting the row of
  /// another source.
  [[nodiscard]] bool has_row_for(Source source) const;

  /// Passes bytes on unchanged, for a job of a single rank.
  void put_raw(Source source, std::string_view bytes);

  /// Writes a line that ends with a newline.
  void put_whole_line(OutputStream stream, std::string_view text);

  /// Writes lines of the launcher itself to stderr; `text` ends with a newline.
  void put_message(std::string_view text);

 private:
  struct Row {
    Source source;
    std::uint64_t shown_until;  // Offset in the stream.
  };

  [[nodiscard]] std::size_t row_of(OutputStream stream) const;
  Sink& select(OutputStream stream);
  /// Ends the open row at the destination of `target`, if there is one.
  void break_row(OutputStream target);

  Sink& out_;
  Sink& err_;
  bool is_one_place_;  // Both sinks have the same destination.
  std::array<std::optional<Row>, 2> rows_;
  StreamSelection interrupted_;  // Sources with interrupted rows.
};

}  // namespace unisono::launch
