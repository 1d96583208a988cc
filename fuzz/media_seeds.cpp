// Seeds for the targets of images and sounds, written with the encoders of their tests.
#include <filesystem>
#include <string>

#include "corpus.h"
#include "tests/test_files.h"

namespace unisono::fuzz {
namespace {

using datasets::testing::gzip;
using datasets::testing::jpeg_bytes;
using datasets::testing::png_bytes;
using datasets::testing::raw_bytes;
using datasets::testing::riff_chunk;
using datasets::testing::some_bytes;
using datasets::testing::wav_bytes;
using datasets::testing::wave_of;

// The first byte is the number of channels: three for even numbers.
void write_images(const std::filesystem::path& root) {
  const Corpus corpus(root, "image");
  const auto add = [&](const char* name, const std::string& file) {
    corpus.add(name, bytes_of(std::string(1, '\0') + file));
  };
  const std::string jpeg =
      jpeg_bytes({.width = 17, .height = 9, .quality = 60, .pixels = some_bytes(459)});
  add("jpeg", jpeg);
  corpus.add("jpeg_as_gray", bytes_of("\1" + jpeg));
  add("jpeg_truncated", jpeg.substr(0, jpeg.size() - 20));
  add("jpeg_gray",
      jpeg_bytes(
          {.width = 9, .height = 8, .components = 1, .quality = 60, .pixels = some_bytes(72)}));
  add("jpeg_cmyk",
      jpeg_bytes(
          {.width = 5, .height = 4, .components = 4, .quality = 60, .pixels = some_bytes(80)}));
  add("jpeg_progressive",
      jpeg_bytes({.width = 17,
                  .height = 9,
                  .quality = 60,
                  .progressive = true,
                  .pixels = some_bytes(459)}));
  const std::string png = png_bytes({.width = 5, .height = 4, .pixels = some_bytes(60)});
  add("png", png);
  add("png_truncated", png.substr(0, 50));
  add("png_interlaced",
      png_bytes({.width = 9, .height = 8, .interlaced = true, .pixels = some_bytes(216)}));
  add("png_palette",
      png_bytes({.width = 4,
                 .height = 2,
                 .bit_depth = 2,
                 .color_type = 3,
                 .palette = some_bytes(12),
                 .pixels = some_bytes(2)}));
  add("png_gray_of_16_bits",
      png_bytes(
          {.width = 3, .height = 2, .bit_depth = 16, .color_type = 0, .pixels = some_bytes(12)}));
  add("png_with_alpha",
      png_bytes({.width = 3, .height = 2, .color_type = 6, .pixels = some_bytes(24)}));
}

void write_wavs(const std::filesystem::path& root) {
  const Corpus corpus(root, "wav");
  const std::string wav = wav_bytes({.samples = some_bytes(20)});
  corpus.add("16_bits", bytes_of(wav));
  corpus.add("truncated", bytes_of(wav.substr(0, 50)));
  corpus.add("8_bits", bytes_of(wav_bytes({.bits = 8, .samples = some_bytes(9)})));
  corpus.add("24_bits", bytes_of(wav_bytes({.bits = 24, .samples = some_bytes(9)})));
  corpus.add("a_law", bytes_of(wav_bytes({.format = 6, .bits = 8, .samples = some_bytes(9)})));
  corpus.add("floats",
             bytes_of(wav_bytes(
                 {.format = 3, .bits = 32, .samples = raw_bytes(0.5F) + raw_bytes(-1.0F)})));
  corpus.add("stereo", bytes_of(wav_bytes({.channels = 2, .samples = some_bytes(8)})));
  corpus.add(
      "other_chunks",
      bytes_of(wave_of(riff_chunk("LIST", "odd") + wav.substr(12) + riff_chunk("x   ", ""))));
}

void write_wav_lists(const std::filesystem::path& root) {
  const Corpus corpus(root, "wav_list");
  const std::string list = "id2 a/1.wav\nid1\ta/2.wav \r\nid2 with space.wav";
  corpus.add("list", bytes_of(list));
  corpus.add("gzip", bytes_of(gzip(list)));
  corpus.add("no_path", bytes_of("id1 a.wav\nid2\n"));
}

}  // namespace

void write_media(const std::filesystem::path& root) {
  write_images(root);
  write_wavs(root);
  write_wav_lists(root);
}

}  // namespace unisono::fuzz
