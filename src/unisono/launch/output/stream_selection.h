#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace unisono::launch {

enum class Stream { kOut, kErr };

/// Which output of which rank a text comes from.
struct Source {
  int local_rank = 0;
  Stream stream = Stream::kOut;

  friend auto operator<=>(const Source&, const Source&) = default;
};

/// Some of the outputs of a node's ranks.
using StreamSelection = std::set<Source>;

/// Reads what torchrun's --redirects and --tee take: 0 for none, 1 for stdout, 2 for stderr, 3 for
/// both, of all ranks, or of some: "0:3,1:2".
///
/// Throws Error(kInvalidArgument) for any other text, and for a local rank that there is not.
[[nodiscard]] StreamSelection parse_streams(const std::string& text, int n_workers);

/// Reads local ranks, "0,3"; none for an empty text. Throws as above.
[[nodiscard]] std::optional<std::set<int>> parse_local_ranks(const std::string& text,
                                                             int n_workers);

/// Where the outputs of ranks go.
struct OutputTargets {
  bool has_files = false;                             ///< There is a folder for log files.
  StreamSelection redirects = {};                     ///< Into a file only.
  StreamSelection tee = {};                           ///< Into a file, too.
  std::optional<std::set<int>> shown = std::nullopt;  ///< Local ranks; nothing: all.
};

/// Whether the output is written into a file: all are, unless some were named.
[[nodiscard]] bool goes_to_file(const OutputTargets& targets, Source source);

/// Whether the output is passed on to that of the launcher.
[[nodiscard]] bool is_shown(const OutputTargets& targets, Source source);

}  // namespace unisono::launch
