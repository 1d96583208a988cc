#include "unisono/datasets/sound_features.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/random.h"

#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Waveform = std::vector<float>;

Waveform tone(double frequency, double sample_rate, std::size_t n_samples) {
  Waveform sound;
  for (std::size_t i = 0; i < n_samples; ++i) {
    const double turns = frequency * static_cast<double>(i) / sample_rate;
    sound.push_back(static_cast<float>(std::sin(2 * std::numbers::pi * turns)));
  }
  return sound;
}

TEST(RandomSoundCrop, GivesEveryPartEquallyOften) {
  const Waveform sound{0, 1, 2, 3, 4};
  std::vector<int> counts(3);
  data::Random random(1);
  for (int draw = 0; draw < 3000; ++draw) {
    const Waveform crop = random_sound_crop(sound, 3, random);
    ASSERT_THAT(crop, ElementsAre(crop[0], crop[0] + 1, crop[0] + 2));
    ++counts.at(static_cast<std::size_t>(crop[0]));
  }
  EXPECT_THAT(counts, ::testing::Each(::testing::Gt(850)));
}

TEST(RandomSoundCrop, RepeatsShortSounds) {
  data::Random random(1);
  EXPECT_THAT(random_sound_crop(Waveform{1, 2}, 5, random), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(random_sound_crop(Waveform{1, 2}, 2, random), ElementsAre(1, 2));
  EXPECT_THAT(error_of([&] { (void)random_sound_crop(Waveform(), 5, random); }).message,
              HasSubstr("the sound has no samples"));
}

TEST(MiddleSoundCrop, IsTheMiddle) {
  EXPECT_THAT(middle_sound_crop(Waveform{1, 2, 3, 4, 5}, 3), ElementsAre(2, 3, 4));
  EXPECT_THAT(middle_sound_crop(Waveform{1, 2, 3, 4}, 3), ElementsAre(1, 2, 3));
  EXPECT_THAT(middle_sound_crop(Waveform{1, 2}, 5), ElementsAre(1, 2, 1, 2, 1));
  EXPECT_THAT(error_of([&] { (void)middle_sound_crop(Waveform(), 5); }).message,
              HasSubstr("middle_sound_crop: the sound has no samples"));
}

// tests/parity compares all values with those of numpy.
TEST(LogMel, ATonesPowerIsInTheFilterOfItsFrequency) {
  const LogMel log_mel;
  std::size_t last = 0;
  for (const double frequency : {300.0, 1000.0, 3000.0, 6000.0}) {
    const SoundFeatures features = log_mel(tone(frequency, 16'000, 16'000));
    ASSERT_EQ(features.n_frames, 98U);
    ASSERT_EQ(features.n_values, 40U);
    ASSERT_EQ(features.values.size(), 98U * 40U);
    const auto frame = features.values.begin() + 50 * 40;
    const auto place = static_cast<std::size_t>(std::max_element(frame, frame + 40) - frame);
    const double mel = 2595 * std::log10(1 + frequency / 700);
    EXPECT_NEAR(static_cast<double>(place), (mel - 31.7) / (2840.0 - 31.7) * 41 - 1, 0.8);
    EXPECT_GE(place, last);
    last = place;
  }
}

// Values of the definition in tests/parity/compare_sound_features.py, in numpy.
TEST(LogMel, AndMfccEqualNumpys) {
  const LogMel log_mel({.sample_rate = 8000,
                        .window = 6,
                        .hop = 4,
                        .n_fft = 8,
                        .n_mels = 3,
                        .f_min = 0,
                        .f_max = 4000});
  const SoundFeatures features =
      log_mel(Waveform{0.5F, -1, 0.25F, 0, 1, -0.5F, 0.75F, -0.25F, 1, 0.5F});
  EXPECT_THAT(features.values,
              ::testing::Pointwise(::testing::FloatNear(1e-6F),
                                   Waveform{-2.1362948517600366F,
                                            -0.3776860747737819F,
                                            -0.4233480536110331F,
                                            -2.298239070810389F,
                                            -0.6441114752406167F,
                                            -0.14434104186975244F}));
  EXPECT_THAT(mfcc(features, 2).values,
              ::testing::Pointwise(::testing::FloatNear(1e-6F),
                                   Waveform{-1.6958676773851191F,
                                            -1.2112362967829449F,
                                            -1.782102219191403F,
                                            -1.5230359022482627F}));
}

TEST(LogMel, SilenceAndShortSounds) {
  const LogMel log_mel;
  const SoundFeatures silence = log_mel(Waveform(400));
  EXPECT_EQ(silence.n_frames, 1U);
  EXPECT_THAT(silence.values, ::testing::Each(std::log(1e-10F)));
  EXPECT_EQ(log_mel(Waveform(399)).n_frames, 0U);
  EXPECT_EQ(log_mel(Waveform(559)).n_frames, 1U);
  EXPECT_EQ(log_mel(Waveform(560)).n_frames, 2U);
}

TEST(LogMel, ExplainsImpossibleOptions) {
  const auto message = [](const LogMelOptions& options) {
    const CaughtError error = error_of([&] { const LogMel log_mel(options); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  EXPECT_THAT(message({.n_fft = 500}), HasSubstr("n_fft is 500"));
  EXPECT_THAT(message({.n_fft = 256}), HasSubstr("at least the window of 400"));
  EXPECT_THAT(message({.hop = 0}), HasSubstr("at least 1"));
  EXPECT_THAT(message({.f_min = 100, .f_max = 100}), HasSubstr("f_min 100, f_max 100"));
  EXPECT_THAT(message({.sample_rate = 8000}), HasSubstr("half the sample rate"));
}

TEST(Mfcc, OfEqualValuesIsOneCoefficient) {
  const SoundFeatures features{.n_frames = 2, .n_values = 4, .values = Waveform(8, 3.0F)};
  const SoundFeatures coefficients = mfcc(features, 3);
  EXPECT_EQ(coefficients.n_frames, 2U);
  EXPECT_EQ(coefficients.n_values, 3U);
  ASSERT_EQ(coefficients.values.size(), 6U);
  EXPECT_FLOAT_EQ(coefficients.values[0], 6);
  EXPECT_NEAR(coefficients.values[1], 0, 1e-6);
  EXPECT_NEAR(coefficients.values[2], 0, 1e-6);
  EXPECT_THAT(error_of([&] { (void)mfcc(features, 5); }).message,
              HasSubstr("5 coefficients were asked for"));
}

}  // namespace
}  // namespace unisono::datasets
