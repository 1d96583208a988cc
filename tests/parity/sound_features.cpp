// Prints LogMel and mfcc() of a sound for compare_sound_features.py, with a frame per line.
//
//     sound_features RATE WINDOW HOP N_FFT N_MELS F_MIN F_MAX N_COEFFICIENTS < SOUND
//
// The sound has a number per line.

#include "unisono/datasets/sound_features.h"

#include <cstddef>
#include <cstdio>
#include <exception>
#include <iostream>
#include <span>
#include <string>
#include <vector>

namespace datasets = unisono::datasets;

namespace {

void print(const datasets::SoundFeatures& features) {
  for (std::size_t frame = 0; frame < features.n_frames; ++frame) {
    for (std::size_t i = 0; i < features.n_values; ++i) {
      std::printf("%.9g ", static_cast<double>(features.values[frame * features.n_values + i]));
    }
    std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<char*> words(argv, static_cast<std::size_t>(argc));
  if (words.size() != 9) {
    std::cerr << "usage: sound_features RATE WINDOW HOP N_FFT N_MELS F_MIN F_MAX N_COEFFICIENTS\n";
    return 2;
  }
  try {
    const datasets::LogMel log_mel({.sample_rate = std::stod(words[1]),
                                    .window = std::stoul(words[2]),
                                    .hop = std::stoul(words[3]),
                                    .n_fft = std::stoul(words[4]),
                                    .n_mels = std::stoul(words[5]),
                                    .f_min = std::stod(words[6]),
                                    .f_max = std::stod(words[7])});
    std::vector<float> sound;
    for (float value = 0; std::cin >> value;) {
      sound.push_back(value);
    }
    const datasets::SoundFeatures features = log_mel(sound);
    print(features);
    print(datasets::mfcc(features, std::stoul(words[8])));
  } catch (const std::exception& error) {
    std::cerr << "sound_features: " << error.what() << '\n';
    return 1;
  }
  return 0;
}
