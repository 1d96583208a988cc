#include "unisono/datasets/sound_dataset.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/base/log.h"
#include "unisono/base/text.h"
#include "unisono/data/random.h"
#include "unisono/datasets/data_files.h"
#include "unisono/datasets/sound_features.h"
#include "unisono/datasets/wav.h"

namespace unisono::datasets {
namespace {

constexpr const char* kWhiteSpace = " \t";
constexpr std::size_t kShownLineBytes = 40;

struct Line {
  std::string id;
  std::string path;
};

// Returns an empty optional for a missing id or path.
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
  TextLines lines = open_text(list);
  std::vector<Line> parsed;
  std::map<std::string, std::int64_t> labels;
  while (const std::optional<std::string> text = lines.next()) {
    std::optional<Line> line = parse(*text);
    if (!line) {
      throw Error(ErrorCode::kCorruptData,
                  fmt::format("{}: line {}: is not an id and the path of a WAV file, but \"{}\"",
                              list,
                              lines.line(),
                              escape_text(*text, kShownLineBytes)));
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
      base::Logger("data").warning(
          fmt::format("{}: line {}: {}: its header has no size, as of a file that was written to a "
                      "pipe or whose recorder ended early; the samples up to the end of the file "
                      "are used, here and in other such files of the list",
                      list_,
                      index + 1,
                      path(index)));
    }
    return sound;
  } catch (const Error& error) {
    throw Error(error.code(), fmt::format("{}: line {}: {}", list_, index + 1, error.what()));
  }
}

namespace {

// 19 minutes at 16 kHz. A larger value is probably a negative number.
constexpr std::size_t kMaxSamples = std::size_t{1} << 24;

void check(const SoundCropOptions& options, std::int64_t sample_rate) {
  if (options.n_samples < 1 || options.n_samples > kMaxSamples) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SoundCrops: crops of {} samples; 1 to {} are possible",
                            options.n_samples,
                            kMaxSamples));
  }
  if (options.n_mfcc != 0 && !options.log_mel) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SoundCrops: n_mfcc is {}, but there is no log_mel to make them of",
                            options.n_mfcc));
  }
  if (options.log_mel && options.log_mel->sample_rate != static_cast<double>(sample_rate)) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SoundCrops: log_mel is for {} samples a second, but the list's sounds "
                            "have {}",
                            options.log_mel->sample_rate,
                            sample_rate == 0 ? "any" : std::to_string(sample_rate)));
  }
}

SoundFeatures features_of(std::span<const float> crop, const LogMel& log_mel, std::size_t n_mfcc) {
  return n_mfcc == 0 ? log_mel(crop) : mfcc(log_mel(crop), n_mfcc);
}

}  // namespace

SoundCrops::SoundCrops(std::shared_ptr<const WavList> sounds, const SoundCropOptions& options)
    : sounds_(std::move(sounds)), options_(options) {
  check(options, sounds_->sample_rate());
  if (!options.log_mel) {
    shape_ = {static_cast<std::int64_t>(options.n_samples)};
    return;
  }
  const LogMel& log_mel = log_mel_.emplace(*options.log_mel);
  const SoundFeatures of_silence =
      features_of(std::vector<float>(options.n_samples), log_mel, options.n_mfcc);
  if (of_silence.n_frames == 0) {
    throw Error(ErrorCode::kInvalidArgument,
                fmt::format("SoundCrops: crops of {} samples are shorter than a frame of {}",
                            options.n_samples,
                            options.log_mel->window));
  }
  shape_ = {static_cast<std::int64_t>(of_silence.n_frames),
            static_cast<std::int64_t>(of_silence.n_values)};
}

std::int64_t SoundCrops::load(std::int64_t index, std::span<std::byte> into) const {
  const Sound sound = sounds_->sound(index);
  data::Random random =
      data::Random::of_sample(options_.seed, epoch_.load(std::memory_order_relaxed), index);
  std::vector<float> values = options_.random
                                  ? random_sound_crop(sound.samples, options_.n_samples, random)
                                  : middle_sound_crop(sound.samples, options_.n_samples);
  if (log_mel_) {
    values = features_of(values, *log_mel_, options_.n_mfcc).values;
  }
  std::memcpy(into.data(), values.data(), into.size());
  return sounds_->label(index);
}

}  // namespace unisono::datasets
