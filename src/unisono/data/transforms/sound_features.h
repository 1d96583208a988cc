#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/random.h"

namespace unisono {

/// A random part of a sound, of `n_samples`. A shorter sound is repeated until it is long enough.
///
/// Takes one number of `random`. Throws Error(kInvalidArgument) when the sound is empty.
[[nodiscard]] std::vector<float> random_sound_crop(std::span<const float> sound,
                                                   std::size_t n_samples,
                                                   Random& random);

/// The middle of a sound, of `n_samples`. A shorter sound is repeated until it is long enough.
///
/// Throws Error(kInvalidArgument) when the sound is empty.
[[nodiscard]] std::vector<float> middle_sound_crop(std::span<const float> sound,
                                                   std::size_t n_samples);

struct LogMelOptions {
  double sample_rate = 16'000;
  /// Samples per frame: 25 ms.
  std::size_t window = 400;
  /// Samples from one frame to the next: 10 ms.
  std::size_t hop = 160;
  /// A power of two, at least `window`: frames are filled up with zeros.
  std::size_t n_fft = 512;
  std::size_t n_mels = 40;
  double f_min = 20;
  /// Above f_min, at most half the sample rate.
  double f_max = 8'000;
};

/// Values of a sound's frames, frame after frame.
struct SoundFeatures {
  std::size_t n_frames = 0;
  std::size_t n_values = 0;  ///< Per frame.
  std::vector<float> values;
};

/// The logarithm of a sound's power on the mel scale, frame by frame.
///
/// Each frame is multiplied by a periodic Hann window; its power spectrum goes through `n_mels`
/// triangular filters, equally far apart on the scale 2595 * log10(1 + f / 700), with a peak of 1;
/// of their sums, but at least 1e-10, the natural logarithm is taken. In float64 until the last
/// step. Immutable, so thread-safe.
///
/// Source: torchaudio's melscale_fbanks() with norm=None and mel_scale="htk"; without its centred
/// frames.
class LogMel {
 public:
  /// Throws Error(kInvalidArgument) for options that make no sense.
  explicit LogMel(const LogMelOptions& options = {});

  /// 1 + (samples - window) / hop frames of n_mels values; none of a sound shorter than a window.
  [[nodiscard]] SoundFeatures operator()(std::span<const float> sound) const;

 private:
  // A filter's weights of the power at `first`, first + 1, ...
  struct Filter {
    std::size_t first = 0;
    std::vector<double> weights;
  };

  void transform(std::vector<std::complex<double>>& values) const;

  LogMelOptions options_;
  std::vector<double> window_;
  std::vector<std::complex<double>> roots_;  // exp(-2 pi i k / n_fft), k below n_fft / 2
  std::vector<Filter> filters_;
};

/// Mel-frequency cepstral coefficients: the first `n_coefficients` of the orthonormal discrete
/// cosine transform (DCT-II) of each frame's values.
///
/// Throws Error(kInvalidArgument) when there are fewer values than that.
[[nodiscard]] SoundFeatures mfcc(const SoundFeatures& log_mel, std::size_t n_coefficients);

}  // namespace unisono
