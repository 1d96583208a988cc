#include "unisono/datasets/wav.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/datasets/tar.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::raw_bytes;
using testing::riff_chunk;
using testing::some_bytes;
using testing::wav_bytes;
using testing::wave_of;

Sound decode(const std::string& file, std::int64_t sample_rate = 0) {
  return decode_wav(std::as_bytes(std::span(file)), "file", sample_rate);
}

CaughtError error_of_bytes(const std::string& file, std::int64_t sample_rate = 0) {
  return error_of([&] { (void)decode(file, sample_rate); });
}

std::string floats(const std::vector<float>& values) {
  std::string bytes;
  for (const float value : values) {
    bytes += raw_bytes(value);
  }
  return bytes;
}

// Decodes a file with these bytes as samples.
std::vector<float> samples_of(std::uint16_t format, std::uint16_t bits, const std::string& bytes) {
  return decode(wav_bytes({.format = format, .bits = bits, .samples = bytes})).samples;
}

TEST(DecodeWav, GivesSamplesOfEveryWidth) {
  EXPECT_THAT(samples_of(1, 8, std::string("\x00\x80\xFF", 3)),
              ElementsAre(-1.0F, 0.0F, 127.0F / 128));
  EXPECT_THAT(samples_of(1, 16, std::string("\x00\x80\x00\x00\x01\x00\xFF\x7F", 8)),
              ElementsAre(-1.0F, 0.0F, 1.0F / 32768, 32767.0F / 32768));
  EXPECT_THAT(samples_of(1, 24, std::string("\x00\x00\x80\x00\x00\x40", 6)),
              ElementsAre(-1.0F, 0.5F));
  EXPECT_THAT(samples_of(1, 32, std::string("\x00\x00\x00\x80\x00\x00\x00\x20", 8)),
              ElementsAre(-1.0F, 0.25F));
  EXPECT_THAT(samples_of(3, 32, floats({0.1F, -2.5F})), ElementsAre(0.1F, -2.5F));
  EXPECT_THAT(samples_of(3, 64, raw_bytes(0.1) + raw_bytes(-1.0)), ElementsAre(0.1F, -1.0F));
  // A silent sample of each format.
  EXPECT_THAT(samples_of(7, 8, "\xFF"), ElementsAre(0.0F));
  EXPECT_NEAR(samples_of(6, 8, "\xD5").at(0), 0, 0.001);
}

TEST(DecodeWav, ChecksTheRate) {
  const std::string file = wav_bytes({.sample_rate = 16000, .samples = some_bytes(20)});
  EXPECT_EQ(decode(file).sample_rate, 16000);
  EXPECT_EQ(decode(file, 16000).samples.size(), 10U);
  EXPECT_EQ(error_of_bytes(file, 8000).message,
            "file: has 16000 samples a second; 8000 are expected: convert it");
  EXPECT_EQ(error_of_bytes(file, -1).code, ErrorCode::kInvalidArgument);
}

TEST(DecodeWav, ReadsOverOtherChunks) {
  const std::string format = riff_chunk(
      "fmt ", std::string("\x01\x00\x01\x00\x40\x1F\x00\x00\x80\x3E\x00\x00\x02\x00\x10\x00", 16));
  const std::string samples = riff_chunk("data", std::string("\x00\x40", 2));
  EXPECT_THAT(decode(wave_of(riff_chunk("LIST", "odd") + format + riff_chunk("junk", "") + samples +
                             riff_chunk("LIST", "more")))
                  .samples,
              ElementsAre(0.5F));
  EXPECT_THAT(error_of_bytes(wave_of(samples + format)).message,
              HasSubstr("at offset 12: samples come before the chunk \"fmt \""));
  EXPECT_THAT(error_of_bytes(wave_of(format)).message,
              HasSubstr("at offset 36: the file ends early: there is no chunk \"data\""));
  EXPECT_THAT(error_of_bytes(wave_of(riff_chunk("fmt ", "short") + samples)).message,
              HasSubstr("at offset 12: the chunk \"fmt \" has 5 bytes; 16 are the least"));
}

TEST(DecodeWav, ExtensibleFormatsAreThoseTheyStandFor) {
  // 16 bits, mono, and a GUID that begins with the format.
  const auto file = [](char format) {
    const std::string head("\xFE\xFF\x01\x00\x40\x1F\x00\x00\x80\x3E\x00\x00\x02\x00\x10\x00", 16);
    const std::string extension("\x16\x00\x10\x00\x04\x00\x00\x00", 8);
    const std::string guid("\x00\x00\x00\x00\x10\x00\x80\x00\x00\xAA\x00\x38\x9B\x71", 14);
    return wave_of(riff_chunk("fmt ", head + extension + format + std::string(1, '\0') + guid) +
                   riff_chunk("data", std::string("\x00\x40", 2)));
  };
  EXPECT_THAT(decode(file(1)).samples, ElementsAre(0.5F));
  EXPECT_THAT(error_of_bytes(file(2)).message, HasSubstr("the samples are of format 0x0002"));
}

TEST(DecodeWav, NoBeginningOfAFileIsAWavFile) {
  const std::string file = wav_bytes({.samples = some_bytes(20)});
  ASSERT_NO_THROW((void)decode(file));
  for (std::size_t n_bytes = 0; n_bytes < file.size(); ++n_bytes) {
    const CaughtError error = error_of_bytes(file.substr(0, n_bytes));
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << n_bytes;
    EXPECT_THAT(error.message, ::testing::StartsWith("file: "));
  }
  EXPECT_EQ(
      error_of_bytes(file.substr(0, 50)).message,
      "file: at offset 36: the file ends early: 6 of 20 bytes of the chunk \"data\" are there");
}

// A WAV file with these sizes of the file and of the chunk "data".
std::string with_sizes(std::string file, std::uint32_t whole, std::uint32_t data) {
  return file.replace(4, 4, raw_bytes(whole)).replace(40, 4, raw_bytes(data));
}

TEST(DecodeWav, StreamedSizesMeanToTheEndOfTheFile) {
  const std::string file = wav_bytes({.samples = some_bytes(20)});
  const Sound expected = decode(file);
  EXPECT_FALSE(expected.is_streamed);
  ASSERT_EQ(expected.samples.size(), 10U);
  for (const auto& [whole, data] : {std::pair(0U, 0U),   // A recorder that crashed.
                                    std::pair(36U, 0U),  // Another recorder that crashed.
                                    std::pair(0xFFFFFFFFU, 0xFFFFFFFFU),  // FFmpeg.
                                    std::pair(0x7FFFF024U, 0x7FFFF000U),  // SoX.
                                    std::pair(0x80000024U, 0x80000000U),  // arecord.
                                    std::pair(0xFFFFFFFFU, 0U)}) {        // GStreamer.
    const Sound sound = decode(with_sizes(file, whole, data));
    EXPECT_EQ(sound.samples, expected.samples) << whole;
    EXPECT_TRUE(sound.is_streamed) << whole;
  }
  // The rest of the file is another chunk.
  EXPECT_EQ(error_of_bytes(with_sizes(file, 56, 0)).message, "file: has no samples");
  EXPECT_THAT(error_of_bytes(with_sizes(file, 0x7FFFEFFF, 0x7FFFEFFF)).message,
              HasSubstr("20 of 2147479551 bytes of the chunk \"data\" are there"));
}

// A file with a chunk of 64-bit sizes.
std::string rf64(const std::string& kind, std::uint64_t n_bytes) {
  const std::string file = wav_bytes({.samples = some_bytes(20)});
  const std::string sizes = raw_bytes(std::uint64_t{80}) + raw_bytes(n_bytes) +
                            raw_bytes(std::uint64_t{10}) + raw_bytes(std::uint32_t{0});
  const std::string none = raw_bytes(~std::uint32_t{0});
  return kind + none + "WAVE" + riff_chunk("ds64", sizes) + file.substr(12, 28) + none +
         file.substr(44);
}

TEST(DecodeWav, SizesOf64BitsAreRead) {
  const Sound expected = decode(wav_bytes({.samples = some_bytes(20)}));
  for (const std::string kind : {"RF64", "BW64"}) {
    EXPECT_EQ(decode(rf64(kind, 20)).samples, expected.samples);
    EXPECT_FALSE(decode(rf64(kind, 20)).is_streamed);
    EXPECT_EQ(decode(rf64(kind, 20) + riff_chunk("LIST", "more")).samples, expected.samples);
    EXPECT_EQ(decode(rf64(kind, ~std::uint64_t{0})).samples, expected.samples);
    EXPECT_TRUE(decode(rf64(kind, 0)).is_streamed);
  }
  EXPECT_THAT(error_of_bytes(rf64("RF64", 5'000'000'000)).message,
              HasSubstr("20 of 5000000000 bytes of the chunk \"data\" are there"));
}

TEST(DecodeWav, DamageIsAnErrorOrAnotherSound) {
  const std::string file = wav_bytes({.samples = some_bytes(20)});
  for (std::size_t at = 0; at < file.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      std::string damaged = file;
      damaged[at] = static_cast<char>(value);
      try {
        EXPECT_LE(decode(damaged).samples.size(), damaged.size());
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
      }
    }
  }
}

TEST(DecodeWav, NamesWhatIsWrong) {
  EXPECT_EQ(error_of_bytes("").message, "file: is not a WAV file: it is empty");
  EXPECT_EQ(error_of_bytes("fLaC, or something else").message,
            "file: is not a WAV file: it does not begin with RIFF, a length and WAVE");
  EXPECT_THAT(error_of_bytes("version https://git-lfs.github.com/spec/v1\n").message,
              HasSubstr("git lfs pull"));
  EXPECT_EQ(error_of_bytes(wav_bytes({.samples = ""})).message, "file: has no samples");
  EXPECT_EQ(error_of_bytes(wav_bytes({.channels = 2, .samples = some_bytes(8)})).message,
            "file: has 2 channels; it must have one");
  EXPECT_THAT(error_of_bytes(wav_bytes({.format = 0x55, .samples = some_bytes(8)})).message,
              HasSubstr("at offset 12: the samples are of format 0x0055"));
  const std::string nan =
      floats({0, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()});
  EXPECT_EQ(error_of_bytes(wav_bytes({.format = 3, .bits = 32, .samples = nan})).message,
            "file: sample 1 is infinite or not a number");
}

TEST(ReadWav, NamesTheFile) {
  const test::TemporaryFolder files;
  EXPECT_EQ(read_wav(files.write("a.wav", wav_bytes({.samples = "ab"}))).samples.size(), 1U);
  const std::string path = files.write("b.wav", "no");
  EXPECT_THAT(error_of([&] { (void)read_wav(path); }).message, HasSubstr(path + ": is not a WAV"));
  EXPECT_EQ(error_of([&] { (void)read_wav(files.path() + "/c.wav"); }).code, ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { (void)read_wav(files.path()); }).code, ErrorCode::kInvalidArgument);
}

TEST(WavRealFiles, AllOfSpokenDigits) {
  const std::string name = "fsdd_recordings.tar.gz";
  if (!datasets::testing::has_real_data(name)) {
    GTEST_SKIP() << datasets::testing::why_skipped(name);
  }
  TarReader archive(datasets::testing::real_data_path(name));
  std::map<char, int> of_digit;
  std::size_t n_samples = 0;
  while (const std::optional<TarEntry> entry = archive.next()) {
    const std::string file = entry->name.substr(entry->name.rfind('/') + 1);
    if (!file.ends_with(".wav")) {
      continue;
    }
    n_samples += decode_wav(archive.content(), entry->name, 8000).samples.size();
    ++of_digit[file[0]];
  }
  EXPECT_EQ(of_digit.size(), 10U);
  EXPECT_THAT(of_digit, ::testing::Each(::testing::Pair(::testing::_, 300)));
  // About 22 minutes.
  EXPECT_NEAR(static_cast<double>(n_samples) / 8000 / 60, 22, 1);
}

}  // namespace
}  // namespace unisono::datasets
