#pragma once

#include <complex>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/data/random.h"

namespace unisono::datasets {

/// Returns a random part of a sound, with `n_samples`. A shorter sound is repeated up to the
/// length.
///
/// Draws one number from `random`. Throws Error(kInvalidArgument) for an empty sound.
[[nodiscard]] std::vector<float> random_sound_crop(std::span<const float> sound,
                                                   std::size_t n_samples,
                                                   data::Random& random);

/// Returns the middle of a sound, with `n_samples`. A shorter sound is repeated up to the length.
///
/// Throws Error(kInvalidArgument) for an empty sound.
[[nodiscard]] std::vector<float> middle_sound_crop(std::span<const float> sound,
                                                   std::size_t n_samples);

/// Frames and filters of LogMel.
struct LogMelOptions {
  /// Samples per second of the sound.
  double sample_rate = 16'000;
  /// Samples per frame: 25 ms.
  std::size_t window = 400;
  /// Samples from one frame to the next: 10 ms.
  std::size_t hop = 160;
  /// Length of the transform, a power of two of at least `window`. Frames are padded with zeros.
  std::size_t n_fft = 512;
  /// Number of filters, spaced evenly on the mel scale.
  std::size_t n_mels = 40;
  /// Lower end of the first filter, in Hz.
  double f_min = 20;
  /// Above f_min, at most half the sample rate.
  double f_max = 8'000;
};

/// Values of the frames of a sound, frame after frame.
struct SoundFeatures {
  std::size_t n_frames = 0;
  std::size_t n_values = 0;  ///< Per frame.
  std::vector<float> values;
};

/// Computes the logarithm of the power of a sound on the mel scale, frame by frame.
///
/// A frame is multiplied by a periodic Hann window. `n_mels` triangular filters with a peak of 1,
/// equidistant on the scale 2595 * log10(1 + f / 700), sum the power spectrum of the frame. The
/// result is the natural logarithm of each sum, with a minimum of 1e-10 for the sum. The
/// computation is in float64 up to the last step. Immutable, so thread-safe.
///
/// Source: torchaudio's melscale_fbanks() with norm=None and mel_scale="htk"; without its centred
/// frames.
class LogMel {
 public:
  /// Throws Error(kInvalidArgument) for impossible options.
  explicit LogMel(const LogMelOptions& options = {});

  /// Returns 1 + (samples - window) / hop frames of n_mels values; no frames for a sound shorter
  /// than a window.
  [[nodiscard]] SoundFeatures operator()(std::span<const float> sound) const;

 private:
  // Weights of the power at `first`, first + 1, ...
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

/// Computes mel-frequency cepstral coefficients: the first `n_coefficients` of the orthonormal
/// discrete cosine transform (DCT-II) of the values of each frame.
///
/// Throws Error(kInvalidArgument) for more coefficients than values.
[[nodiscard]] SoundFeatures mfcc(const SoundFeatures& log_mel, std::size_t n_coefficients);

}  // namespace unisono::datasets
