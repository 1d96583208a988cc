#pragma once

#include <array>
#include <cstddef>
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
/// A row is an unfinished line that is shown. stdout and stderr have one each, or one together
/// where both end in the same place. When another line has to be written there meanwhile, a newline
/// ends the row first, and its line is shown again (from its last carriage return) when more of it
/// arrives.
class Console {
 public:
  Console(Sink& out, Sink& err);

  void put_line(Source source, std::string_view prefix, const Line& line);

  /// Shows what is there of an unfinished line.
  void put_partial(Source source, std::string_view prefix, const Line& partial);

  /// Whether a part of the source's line can be shown without ending another one's row.
  [[nodiscard]] bool has_row_for(Source source) const;

  /// Passes bytes on as they are, for a job of one rank.
  void put_raw(Source source, std::string_view bytes);

  /// Writes a line that ends with a newline.
  void put_whole_line(Stream stream, std::string_view text);

  /// Writes lines of the launcher itself to stderr; `text` ends with a newline.
  void put_message(std::string_view text);

 private:
  struct Row {
    Source source;
    std::uint64_t shown_until;  // Place in the stream.
  };

  [[nodiscard]] std::size_t row_of(Stream stream) const;
  Sink& select(Stream stream);
  void break_row(Stream target);

  Sink& out_;
  Sink& err_;
  bool is_one_place_;  // stdout's and stderr's.
  std::array<std::optional<Row>, 2> rows_;
  StreamSelection interrupted_;  // Sources whose rows were ended before their lines.
};

}  // namespace unisono::launch
