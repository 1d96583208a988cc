#include "unisono/data/sounds/sound_crops.h"

#include <fmt/format.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/random.h"
#include "unisono/data/sounds/decode_wav.h"
#include "unisono/data/sounds/wav_list.h"
#include "unisono/data/transforms/sound_features.h"

namespace unisono {
namespace {

// 19 minutes at 16 kHz: beyond that it is rather a negative number.
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
  Random random = Random::of_sample(options_.seed, epoch_.load(std::memory_order_relaxed), index);
  std::vector<float> values = options_.random
                                  ? random_sound_crop(sound.samples, options_.n_samples, random)
                                  : middle_sound_crop(sound.samples, options_.n_samples);
  if (log_mel_) {
    values = features_of(values, *log_mel_, options_.n_mfcc).values;
  }
  std::memcpy(into.data(), values.data(), into.size());
  return sounds_->label(index);
}

}  // namespace unisono
