#include "unisono/datasets/sound_features.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <numbers>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/data/random.h"

namespace unisono::datasets {
namespace {

constexpr double kLeastPower = 1e-10;
constexpr std::size_t kMaxFft = std::size_t{1} << 24;

[[noreturn]] void throw_bad(const std::string& problem) {
  throw Error(ErrorCode::kInvalidArgument, problem);
}

LogMelOptions checked(const LogMelOptions& options) {
  if (options.window < 1 || options.hop < 1 || options.n_mels < 1) {
    throw_bad("LogMel: window, hop and n_mels must be at least 1");
  }
  if (!std::has_single_bit(options.n_fft) ||
      options.n_fft < std::max<std::size_t>(options.window, 2) || options.n_fft > kMaxFft) {
    throw_bad(
        fmt::format("LogMel: n_fft is {}; it must be a power of two, at least the window of "
                    "{} samples, at most {}",
                    options.n_fft,
                    options.window,
                    kMaxFft));
  }
  if (!(options.f_min >= 0 && options.f_min < options.f_max &&
        options.f_max <= options.sample_rate / 2)) {
    throw_bad(
        fmt::format("LogMel: f_min {}, f_max {}; they must be 0 <= f_min < f_max <= {}, half "
                    "the sample rate",
                    options.f_min,
                    options.f_max,
                    options.sample_rate / 2));
  }
  return options;
}

std::vector<double> hann_window(std::size_t n_samples) {
  std::vector<double> window(n_samples);
  for (std::size_t i = 0; i < n_samples; ++i) {
    const double turn = static_cast<double>(i) / static_cast<double>(n_samples);
    window[i] = 0.5 - 0.5 * std::cos(2 * std::numbers::pi * turn);
  }
  return window;
}

double mel_of(double frequency) {
  return 2595 * std::log10(1 + frequency / 700);
}

double frequency_of(double mel) {
  return 700 * (std::pow(10, mel / 2595) - 1);
}

// Corner frequencies: filter i rises from corner i to i + 1 and falls to i + 2.
std::vector<double> filter_corners(const LogMelOptions& options) {
  const double low = mel_of(options.f_min);
  const double step = (mel_of(options.f_max) - low) / static_cast<double>(options.n_mels + 1);
  std::vector<double> corners(options.n_mels + 2);
  for (std::size_t i = 0; i < corners.size(); ++i) {
    corners[i] = frequency_of(low + step * static_cast<double>(i));
  }
  return corners;
}

void check_sound(const char* function, std::span<const float> sound) {
  if (sound.empty()) {
    throw_bad(fmt::format("{}: the sound has no samples", function));
  }
}

// Returns `n_samples` from `start` on. The sound repeats after its end.
std::vector<float> crop_at(std::span<const float> sound, std::size_t start, std::size_t n_samples) {
  std::vector<float> crop(n_samples);
  for (std::size_t i = 0; i < n_samples; ++i) {
    crop[i] = sound[(start + i) % sound.size()];
  }
  return crop;
}

}  // namespace

std::vector<float> random_sound_crop(std::span<const float> sound,
                                     std::size_t n_samples,
                                     data::Random& random) {
  check_sound("random_sound_crop", sound);
  const std::size_t n_starts = sound.size() > n_samples ? sound.size() - n_samples + 1 : 1;
  return crop_at(sound, random.below(n_starts), n_samples);
}

std::vector<float> middle_sound_crop(std::span<const float> sound, std::size_t n_samples) {
  check_sound("middle_sound_crop", sound);
  return crop_at(sound, sound.size() > n_samples ? (sound.size() - n_samples) / 2 : 0, n_samples);
}

LogMel::LogMel(const LogMelOptions& options)
    : options_(checked(options)), window_(hann_window(options.window)) {
  for (std::size_t k = 0; k < options.n_fft / 2; ++k) {
    const double turn = static_cast<double>(k) / static_cast<double>(options.n_fft);
    roots_.push_back(std::polar(1.0, -2 * std::numbers::pi * turn));
  }
  const std::vector<double> corners = filter_corners(options);
  const double hertz_per_bin = options.sample_rate / static_cast<double>(options.n_fft);
  for (std::size_t i = 0; i < options.n_mels; ++i) {
    Filter filter;
    for (std::size_t bin = 0; bin <= options.n_fft / 2; ++bin) {
      const double frequency = static_cast<double>(bin) * hertz_per_bin;
      const double up = (frequency - corners[i]) / (corners[i + 1] - corners[i]);
      const double down = (corners[i + 2] - frequency) / (corners[i + 2] - corners[i + 1]);
      const double weight = std::min(up, down);
      if (weight <= 0) {
        continue;
      }
      if (filter.weights.empty()) {
        filter.first = bin;
      }
      filter.weights.push_back(weight);
    }
    filters_.push_back(std::move(filter));
  }
}

// Computes the discrete Fourier transform in place.
//
// Source: Cooley and Tukey, "An algorithm for the machine calculation of complex Fourier series",
// Math. Comp. 19 (1965).
void LogMel::transform(std::vector<std::complex<double>>& values) const {
  const std::size_t n_values = values.size();
  for (std::size_t i = 1, reversed = 0; i < n_values; ++i) {
    std::size_t bit = n_values >> 1;
    for (; (reversed & bit) != 0; bit >>= 1) {
      reversed ^= bit;
    }
    reversed ^= bit;
    if (i < reversed) {
      std::swap(values[i], values[reversed]);
    }
  }
  for (std::size_t half = 1; half < n_values; half *= 2) {
    const std::size_t stride = n_values / (2 * half);
    for (std::size_t start = 0; start < n_values; start += 2 * half) {
      for (std::size_t k = 0; k < half; ++k) {
        const std::complex<double> even = values[start + k];
        const std::complex<double> odd = values[start + half + k] * roots_[k * stride];
        values[start + k] = even + odd;
        values[start + half + k] = even - odd;
      }
    }
  }
}

SoundFeatures LogMel::operator()(std::span<const float> sound) const {
  SoundFeatures features{.n_frames = 0, .n_values = options_.n_mels, .values = {}};
  if (sound.size() < options_.window) {
    return features;
  }
  features.n_frames = 1 + (sound.size() - options_.window) / options_.hop;
  features.values.reserve(features.n_frames * features.n_values);
  std::vector<std::complex<double>> spectrum;
  for (std::size_t frame = 0; frame < features.n_frames; ++frame) {
    spectrum.assign(options_.n_fft, 0);
    for (std::size_t i = 0; i < options_.window; ++i) {
      spectrum[i] = window_[i] * double{sound[frame * options_.hop + i]};
    }
    transform(spectrum);
    for (const Filter& filter : filters_) {
      double power = 0;
      for (std::size_t i = 0; i < filter.weights.size(); ++i) {
        power += filter.weights[i] * std::norm(spectrum[filter.first + i]);
      }
      features.values.push_back(static_cast<float>(std::log(std::max(power, kLeastPower))));
    }
  }
  return features;
}

SoundFeatures mfcc(const SoundFeatures& log_mel, std::size_t n_coefficients) {
  const std::size_t n_values = log_mel.n_values;
  if (n_coefficients > n_values) {
    throw_bad(fmt::format("mfcc: {} coefficients were asked for, but a frame has {} values",
                          n_coefficients,
                          n_values));
  }
  std::vector<double> table(n_coefficients * n_values);
  const double n = static_cast<double>(n_values);
  for (std::size_t k = 0; k < n_coefficients; ++k) {
    const double scale = std::sqrt((k == 0 ? 1 : 2) / n);
    for (std::size_t i = 0; i < n_values; ++i) {
      const double angle = std::numbers::pi / n * (static_cast<double>(i) + 0.5);
      table[k * n_values + i] = scale * std::cos(angle * static_cast<double>(k));
    }
  }
  SoundFeatures result{.n_frames = log_mel.n_frames, .n_values = n_coefficients, .values = {}};
  for (std::size_t frame = 0; frame < log_mel.n_frames; ++frame) {
    for (std::size_t k = 0; k < n_coefficients; ++k) {
      double sum = 0;
      for (std::size_t i = 0; i < n_values; ++i) {
        sum += table[k * n_values + i] * double{log_mel.values[frame * n_values + i]};
      }
      result.values.push_back(static_cast<float>(sum));
    }
  }
  return result;
}

}  // namespace unisono::datasets
