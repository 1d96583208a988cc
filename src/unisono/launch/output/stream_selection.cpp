#include "unisono/launch/output/stream_selection.h"

#include <fmt/format.h>

#include <charconv>
#include <cstddef>
#include <string_view>
#include <system_error>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::launch {
namespace {

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const std::size_t end = text.find(separator);
    parts.push_back(text.substr(0, end));
    if (end == std::string_view::npos) {
      return parts;
    }
    text.remove_prefix(end + 1);
  }
}

// Parses a number from 0 to `last`.
int parse_number(std::string_view text, int last, const char* what) {
  int number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > last) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("\"{}\" is not a {}: there are 0 to {}", text, what, last));
  }
  return number;
}

void select(StreamSelection& selection, int local_rank, std::string_view streams) {
  constexpr int kBoth = 3;
  const int number = parse_number(streams, kBoth, "choice of streams");
  for (const OutputStream stream : {OutputStream::kOut, OutputStream::kErr}) {
    const int bit = stream == OutputStream::kOut ? 1 : 2;
    if ((number & bit) != 0) {
      selection.insert({local_rank, stream});
    }
  }
}

}  // namespace

StreamSelection parse_streams(const std::string& text, int n_workers) {
  StreamSelection selection;
  if (text.find(':') == std::string::npos) {
    for (int local_rank = 0; local_rank < n_workers; ++local_rank) {
      select(selection, local_rank, text);
    }
    return selection;
  }
  for (const std::string_view part : split(text, ',')) {
    const std::vector<std::string_view> pair = split(part, ':');
    if (pair.size() != 2) {
      throw Error(ErrorCode::kInvalidArgument,
                  fmt::format("\"{}\" is not LOCAL_RANK:STREAMS, such as 0:3", part));
    }
    select(selection, parse_number(pair[0], n_workers - 1, "local rank"), pair[1]);
  }
  return selection;
}

std::optional<std::set<int>> parse_local_ranks(const std::string& text, int n_workers) {
  if (text.empty()) {
    return std::nullopt;
  }
  std::set<int> ranks;
  for (const std::string_view part : split(text, ',')) {
    ranks.insert(parse_number(part, n_workers - 1, "local rank"));
  }
  return ranks;
}

bool goes_to_file(const OutputTargets& targets, Source source) {
  const bool are_all = targets.redirects.empty() && targets.tee.empty();
  return targets.has_files &&
         (are_all || targets.redirects.contains(source) || targets.tee.contains(source));
}

bool is_shown(const OutputTargets& targets, Source source) {
  const bool is_redirected = targets.redirects.contains(source) && !targets.tee.contains(source);
  return !is_redirected && (!targets.shown || targets.shown->contains(source.local_rank));
}

}  // namespace unisono::launch
