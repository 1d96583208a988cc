#pragma once

#include <optional>
#include <set>
#include <string>
#include <utility>

namespace unisono::launch {

/// An output stream of a rank: stdout or stderr.
enum class OutputStream { kOut, kErr };

/// Rank and stream from which a text comes.
struct Source {
  int local_rank = 0;
  OutputStream stream = OutputStream::kOut;

  friend auto operator<=>(const Source&, const Source&) = default;
};

/// A set of output streams of a node's ranks.
using StreamSelection = std::set<Source>;

/// Parses the value of torchrun's --redirects and --tee: 0 for no stream, 1 for stdout, 2 for
/// stderr, 3 for both, either for all ranks ("3") or for some ("0:3,1:2").
///
/// Throws Error(kInvalidArgument) for any other text and for a local rank that does not exist.
[[nodiscard]] StreamSelection parse_streams(const std::string& text, int n_workers);

/// Parses a list of local ranks such as "0,3"; returns std::nullopt for an empty text. Throws
/// Error(kInvalidArgument) like parse_streams().
[[nodiscard]] std::optional<std::set<int>> parse_local_ranks(const std::string& text,
                                                             int n_workers);

/// Destinations of the ranks' output.
struct OutputTargets {
  bool has_files = false;                             ///< A folder for log files exists.
  StreamSelection redirects = {};                     ///< Written to a file only.
  StreamSelection tee = {};                           ///< Written to a file and shown.
  std::optional<std::set<int>> shown = std::nullopt;  ///< Local ranks; std::nullopt: all.
};

/// Returns true if the stream is written to a file. Without a selection of streams, all are.
[[nodiscard]] bool goes_to_file(const OutputTargets& targets, Source source);

/// Returns true if the stream is passed on to the launcher's output.
[[nodiscard]] bool is_shown(const OutputTargets& targets, Source source);

}  // namespace unisono::launch
