#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "unisono/launch/output/line_splitter.h"
#include "unisono/launch/output/sink.h"
#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {

/// Puts the output of many ranks on our own stdout and stderr so that no line is mixed with
/// another.
///
/// Only one source at a time may have an unfinished line on a terminal. When another line has to be
/// written there meanwhile, a newline ends the unfinished one first, and it is shown again (from
/// its last carriage return) when more of it arrives.
class Console {
 public:
  Console(Sink& out, Sink& err) : out_(out), err_(err) {}

  void put_line(Source source, std::string_view prefix, const Line& line);

  /// Shows what is there of an unfinished line.
  void put_partial(Source source, const Line& partial);

  /// Passes bytes on as they are, for a job of one rank.
  void put_raw(Source source, std::string_view bytes);

  /// Writes a line that ends with a newline.
  void put_whole_line(Stream stream, std::string_view text);

  /// Writes lines of the launcher itself to stderr; `text` ends with a newline.
  void put_message(std::string_view text);

 private:
  struct OpenRow {
    Source source;
    std::uint64_t shown_until;  // Place in the stream.
  };

  Sink& select(Stream stream);
  void break_row(Stream target);

  Sink& out_;
  Sink& err_;
  std::optional<OpenRow> open_;
};

}  // namespace unisono::launch
