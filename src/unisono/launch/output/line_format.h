#pragma once

#include <span>
#include <string>
#include <string_view>

#include "unisono/launch/output/stream_selection.h"

namespace unisono::launch {

/// How the launcher writes lines, its own and those of ranks.
struct LineFormat {
  bool is_json = false;   ///< An object a line, with the time.
  std::string host = {};  ///< This machine's name, where output of several comes together.
  /// The prefix of a rank's line in torchrun's form: "[${role_name}${local_rank}]:". Empty: the
  /// usual one.
  std::string prefix_template = {};
  std::string role = {};  ///< The template's role_name.

  friend bool operator==(const LineFormat&, const LineFormat&) = default;
};

/// What a line of a rank begins with: "[rank 3] ", or "[alpha:3] ", or the template with its names
/// replaced; names that it does not have stay.
[[nodiscard]] std::string rank_prefix(const LineFormat& format,
                                      int rank,
                                      int local_rank,
                                      bool has_colour);

/// The same line of several ranks: "[0-2,7] text", with its newline.
[[nodiscard]] std::string format_collapsed(const LineFormat& format,
                                           std::span<const int> ranks,
                                           std::string_view text,
                                           bool has_colour);

/// A line as JSON, with its newline: {"time": "2024-05-06T07:08:09.123456Z", "host": "alpha",
/// "rank": 3, "stream": "stdout", "text": "..."}, or "ranks": [0, 1] for several. What is no UTF-8
/// is replaced.
[[nodiscard]] std::string format_json(const LineFormat& format,
                                      std::span<const int> ranks,
                                      Stream stream,
                                      std::string_view text);

/// The launcher's own text: each line with "[unisono run] ", or "[unisono run on alpha] ", in
/// front; or an object with "source": "launcher".
[[nodiscard]] std::string format_message(const LineFormat& format, std::string_view text);

}  // namespace unisono::launch
