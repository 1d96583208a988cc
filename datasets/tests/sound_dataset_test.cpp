#include "unisono/datasets/sound_dataset.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/data/batch.h"
#include "unisono/data/data_loader.h"
#include "unisono/data/samplers/distributed_sampler.h"
#include "unisono/datasets/sound_features.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using testing::gzip;
using ::testing::HasSubstr;
using testing::raw_bytes;
using testing::some_bytes;
using testing::wav_bytes;

// Samples first, first + 1, ... in units of 2^-15.
std::string ramp(int first, int n_samples) {
  std::string bytes;
  for (int i = 0; i < n_samples; ++i) {
    bytes += raw_bytes(static_cast<std::int16_t>(first + i));
  }
  return wav_bytes({.samples = bytes});
}

class WavLists : public ::testing::Test {
 protected:
  [[nodiscard]] std::shared_ptr<const WavList> list(const std::string& text) const {
    return std::make_shared<WavList>(files_.write("list.txt", text), files_.path(), 8000);
  }

  [[nodiscard]] CaughtError error_of_text(const std::string& text) const {
    return error_of([&] { (void)list(text); });
  }

  // Four sounds of two speakers. One sound is shorter than the crops of these tests.
  [[nodiscard]] std::shared_ptr<const WavList> four_sounds() const {
    (void)files_.write("b/1.wav", ramp(0, 1000));
    (void)files_.write("b/2.wav", ramp(2000, 300));
    (void)files_.write("a/1.wav", ramp(4000, 50));
    (void)files_.write("a/2.wav", ramp(6000, 700));
    return list("b b/1.wav\nb b/2.wav\na a/1.wav\na a/2.wav\n");
  }

  test::TemporaryFolder files_;
};

TEST_F(WavLists, LabelsAreThePlacesOfTheSortedIds) {
  (void)files_.write("x/1.wav", ramp(3, 2));
  const std::string text = "id20 x/1.wav\r\nid10\tx/2.wav\n  id20   x/with space.wav \nid3 /a.wav";
  const auto sounds = list(text);
  EXPECT_EQ(sounds->size(), 4);
  EXPECT_THAT(sounds->ids(), ElementsAre("id10", "id20", "id3"));
  EXPECT_EQ(sounds->label(0), 1);
  EXPECT_EQ(sounds->label(1), 0);
  EXPECT_EQ(sounds->label(2), 1);
  EXPECT_EQ(sounds->label(3), 2);
  EXPECT_EQ(sounds->path(2), files_.path() + "/x/with space.wav");
  EXPECT_EQ(sounds->path(3), "/a.wav");
  EXPECT_THAT(sounds->sound(0).samples, ElementsAre(3.0F / 32768, 4.0F / 32768));
  EXPECT_EQ(list(gzip(text))->size(), 4);
}

TEST_F(WavLists, ABadLineIsNamed) {
  for (const std::string line : {"alone", "alone ", "", " "}) {
    const CaughtError error = error_of_text("id x.wav\n" + line + "\nid y.wav\n");
    EXPECT_EQ(error.code, ErrorCode::kCorruptData);
    EXPECT_THAT(error.message,
                HasSubstr("list.txt: line 2: is not an id and the path of a WAV file, but \"" +
                          line + "\""));
  }
  EXPECT_THAT(error_of_text("").message, HasSubstr("list.txt: has no lines"));
  EXPECT_EQ(error_of([&] { (void)WavList(files_.path() + "/no", "", 0); }).code,
            ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { (void)WavList(files_.write("l", "a b"), "", -1); }).code,
            ErrorCode::kInvalidArgument);
}

TEST_F(WavLists, ABadFileIsNamedWithItsLine) {
  (void)files_.write("text.wav", "text");
  (void)files_.write("fast.wav", wav_bytes({.sample_rate = 44100, .samples = "ab"}));
  (void)files_.write("empty.wav", wav_bytes({.samples = ""}));
  const auto sounds = list("a gone.wav\na text.wav\na fast.wav\na empty.wav\n");
  const auto error = [&](std::int64_t index) {
    return error_of([&] { (void)sounds->sound(index); });
  };
  EXPECT_EQ(error(0).code, ErrorCode::kNotFound);
  EXPECT_THAT(error(0).message,
              HasSubstr("list.txt: line 1: " + files_.path() + "/gone.wav: there is no such file"));
  EXPECT_EQ(error(1).code, ErrorCode::kCorruptData);
  EXPECT_THAT(error(1).message, HasSubstr("line 2: " + files_.path() + "/text.wav: is not a WAV"));
  EXPECT_THAT(error(2).message, HasSubstr("line 3: " + files_.path() + "/fast.wav: has 44100"));
  EXPECT_THAT(error(3).message, HasSubstr("empty.wav: has no samples"));
}

TEST_F(WavLists, WarnOnceOfSoundsWithoutSize) {
  for (const std::string name : {"1.wav", "2.wav"}) {
    (void)files_.write(name, ramp(0, 10).replace(40, 4, raw_bytes(~std::uint32_t{0})));
  }
  const auto sounds = list("a 1.wav\na 2.wav\n");
  ::testing::internal::CaptureStderr();
  for (const std::int64_t index : {0, 1, 0}) {
    EXPECT_EQ(sounds->sound(index).samples.size(), 10U);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(log, HasSubstr("list.txt: line 1: " + files_.path() + "/1.wav: its header has no"));
  EXPECT_EQ(std::ranges::count(log, '\n'), 1);
}

// All crops of an epoch, in the order of the list.
std::vector<float> load_epoch(const std::shared_ptr<SoundCrops>& crops,
                              std::int64_t epoch,
                              int num_workers) {
  crops->set_epoch(epoch);
  DistributedSampler sampler(crops->size(), 1, 0, {.shuffle = false});
  DataLoader loader(crops, {.batch_size = 3, .num_workers = num_workers});
  loader.start(sampler);
  std::vector<float> values;
  while (const std::optional<data::Batch> batch = loader.next()) {
    values.insert(values.end(), batch->values<float>().begin(), batch->values<float>().end());
  }
  return values;
}

TEST_F(WavLists, CropsDependOnSeedAndEpochButNotOnWorkers) {
  const auto sounds = four_sounds();
  const auto crops = std::make_shared<SoundCrops>(sounds, SoundCropOptions{.n_samples = 100});
  EXPECT_THAT(crops->sample_shape(), ElementsAre(100));
  const std::vector<float> expected = load_epoch(crops, 5, 0);
  ASSERT_EQ(expected.size(), 400U);
  EXPECT_EQ(load_epoch(crops, 5, 1), expected);
  EXPECT_EQ(load_epoch(crops, 5, 4), expected);
  EXPECT_NE(load_epoch(crops, 6, 4), expected);
  const auto others =
      std::make_shared<SoundCrops>(sounds, SoundCropOptions{.n_samples = 100, .seed = 1});
  EXPECT_NE(load_epoch(others, 5, 0), expected);
  EXPECT_EQ(load_epoch(crops, 5, 0), expected);
}

TEST_F(WavLists, CropsArePartsOfTheirSounds) {
  const auto crops =
      std::make_shared<SoundCrops>(four_sounds(), SoundCropOptions{.n_samples = 100});
  std::vector<float> crop(100);
  std::set<float> starts;
  for (std::int64_t epoch = 0; epoch < 50; ++epoch) {
    crops->set_epoch(epoch);
    EXPECT_EQ(crops->load(0, std::as_writable_bytes(std::span(crop))), 1);
    starts.insert(crop[0] * 32768);
    EXPECT_EQ(crop[99], crop[0] + 99.0F / 32768);
    EXPECT_EQ(crops->load(2, std::as_writable_bytes(std::span(crop))), 0);
    EXPECT_EQ(crop[0], 4000.0F / 32768);
    EXPECT_EQ(crop[50], 4000.0F / 32768);
  }
  EXPECT_GT(starts.size(), 30U);
  EXPECT_GE(*starts.begin(), 0);
  EXPECT_LE(*starts.rbegin(), 900);

  const SoundCrops middle(four_sounds(), {.n_samples = 100, .random = false});
  EXPECT_EQ(middle.load(0, std::as_writable_bytes(std::span(crop))), 1);
  EXPECT_EQ(crop[0], 450.0F / 32768);
}

TEST_F(WavLists, CropsMayBeFeatures) {
  const LogMelOptions log_mel{.sample_rate = 8000,
                              .window = 200,
                              .hop = 80,
                              .n_fft = 256,
                              .n_mels = 23,
                              .f_min = 0,
                              .f_max = 4000};
  const auto sounds = four_sounds();
  const SoundCrops plain(sounds, {.n_samples = 520});
  const SoundCrops powers(sounds, {.n_samples = 520, .log_mel = log_mel});
  const SoundCrops cepstra(sounds, {.n_samples = 520, .log_mel = log_mel, .n_mfcc = 13});
  EXPECT_THAT(powers.sample_shape(), ElementsAre(5, 23));
  EXPECT_THAT(cepstra.sample_shape(), ElementsAre(5, 13));
  std::vector<float> crop(520);
  std::vector<float> values(std::size_t{5} * 23);
  EXPECT_EQ(plain.load(3, std::as_writable_bytes(std::span(crop))), 0);
  EXPECT_EQ(powers.load(3, std::as_writable_bytes(std::span(values))), 0);
  EXPECT_EQ(values, LogMel(log_mel)(crop).values);
  values.resize(std::size_t{5} * 13);
  EXPECT_EQ(cepstra.load(3, std::as_writable_bytes(std::span(values))), 0);
  EXPECT_EQ(values, mfcc(LogMel(log_mel)(crop), 13).values);
}

TEST_F(WavLists, CropsThatMakeNoSenseAreExplained) {
  const auto sounds = four_sounds();
  const auto message = [&](const SoundCropOptions& options) {
    const CaughtError error = error_of([&] { (void)SoundCrops(sounds, options); });
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    return error.message;
  };
  const LogMelOptions log_mel{.sample_rate = 8000, .f_max = 4000};
  EXPECT_THAT(message({.n_samples = 0}), HasSubstr("crops of 0 samples"));
  EXPECT_THAT(message({.n_samples = static_cast<std::size_t>(-1)}), HasSubstr("are possible"));
  EXPECT_THAT(message({.n_mfcc = 3}), HasSubstr("there is no log_mel"));
  EXPECT_THAT(message({.n_samples = 399, .log_mel = log_mel}),
              HasSubstr("crops of 399 samples are shorter than a frame of 400"));
  EXPECT_THAT(message({.log_mel = log_mel, .n_mfcc = 41}), HasSubstr("41 coefficients"));
  EXPECT_THAT(message({.log_mel = LogMelOptions()}),
              HasSubstr("log_mel is for 16000 samples a second, but the list's sounds have 8000"));
}

}  // namespace
}  // namespace unisono::datasets
