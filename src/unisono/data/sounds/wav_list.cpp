#include "unisono/data/sounds/wav_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/text_lines.h"
#include "unisono/data/readers/file_source.h"
#include "unisono/data/sounds/decode_wav.h"

namespace unisono {
namespace {

constexpr const char* kWhiteSpace = " \t";
constexpr std::size_t kShownBytes = 40;

struct Line {
  std::string id;
  std::string path;
};

// Nothing where an id or a path is missing.
std::optional<Line> parse(const std::string& text) {
  const std::size_t id = text.find_first_not_of(kWhiteSpace);
  const std::size_t id_end = text.find_first_of(kWhiteSpace, id);
  const std::size_t path = text.find_first_not_of(kWhiteSpace, id_end);
  if (id == std::string::npos || id_end == std::string::npos || path == std::string::npos) {
    return std::nullopt;
  }
  const std::size_t path_end = text.find_last_not_of(kWhiteSpace) + 1;
  return Line{.id = text.substr(id, id_end - id), .path = text.substr(path, path_end - path)};
}

}  // namespace

WavList::WavList(const std::string& list, const std::string& folder, std::int64_t sample_rate)
    : list_(list), folder_(folder), sample_rate_(sample_rate) {
  if (sample_rate < 0) {
    throw Error(
        ErrorCode::kInvalidArgument,
        fmt::format("WavList: a sample rate of {}; it must be above 0, or 0 for any", sample_rate));
  }
  TextLines lines = data::open_text(list);
  std::vector<Line> parsed;
  std::map<std::string, std::int64_t> labels;
  while (const std::optional<std::string> text = lines.next()) {
    std::optional<Line> line = parse(*text);
    if (!line) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: line {}: is not an id and the path of a WAV file, but \"{}\"",
                              list,
                              lines.line(),
                              escape_text(*text, kShownBytes)));
    }
    labels[line->id] = 0;
    parsed.push_back(std::move(*line));
  }
  if (parsed.empty()) {
    throw Error(ErrorCode::kCorruptData, fmt::format("{}: has no lines", list));
  }
  for (auto& [id, label] : labels) {
    label = static_cast<std::int64_t>(ids_.size());
    ids_.push_back(id);
  }
  for (Line& line : parsed) {
    entries_.push_back({.path = std::move(line.path), .label = labels.at(line.id)});
  }
}

std::int64_t WavList::label(std::int64_t index) const {
  return entries_[static_cast<std::size_t>(index)].label;
}

std::string WavList::path(std::int64_t index) const {
  return (std::filesystem::path(folder_) / entries_[static_cast<std::size_t>(index)].path).string();
}

Sound WavList::sound(std::int64_t index) const {
  try {
    Sound sound = read_wav(path(index), sample_rate_);
    if (sound.is_streamed && !has_warned_.exchange(true, std::memory_order_relaxed)) {
      Logger("data").warning(
          fmt::format("{}: line {}: {}: its header has no size, as of a file that was written to a "
                      "pipe or whose recorder ended early; takes the samples up to the end of the "
                      "file, here and in other such files of the list",
                      list_,
                      index + 1,
                      path(index)));
    }
    return sound;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: line {}: {}", list_, index + 1, error.what()));
  }
}

}  // namespace unisono
