#include "unisono/datasets/decode_image.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "unisono/base/error.h"
#include "unisono/datasets/cifar.h"
#include "unisono/datasets/image_dataset.h"
#include "unisono/datasets/tar.h"

#include "support/temporary_folder.h"
#include "support/throws_error.h"
#include "tests/test_files.h"

namespace unisono::datasets {
namespace {

using test::CaughtError;
using test::error_of;
using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::jpeg_bytes;
using testing::JpegImage;
using testing::png_bytes;
using testing::PngImage;
using testing::some_bytes;

std::span<const std::byte> bytes_of(const std::string& text) {
  return std::as_bytes(std::span(text));
}

DecodedImage decode(const std::string& file, const DecodeOptions& options = {}) {
  return decode_image(bytes_of(file), "file", options);
}

std::string text_of(const DecodedImage& image) {
  return {reinterpret_cast<const char*>(image.pixels.data()), image.pixels.size()};
}

CaughtError error_of_bytes(const std::string& file, const DecodeOptions& options = {}) {
  return error_of([&] { (void)decode(file, options); });
}

// Turns pixels in the order of an image file into channel after channel.
std::string planes(const std::string& pixels, std::size_t channels) {
  std::string result;
  for (std::size_t channel = 0; channel < channels; ++channel) {
    for (std::size_t at = channel; at < pixels.size(); at += channels) {
      result += pixels[at];
    }
  }
  return result;
}

std::string rgb_png(bool interlaced = false) {
  return png_bytes({.width = 9, .height = 7, .interlaced = interlaced, .pixels = some_bytes(189)});
}

// Colors that change slowly, which JPEG preserves well.
JpegImage slope(int components = 3, bool progressive = false) {
  JpegImage image{.width = 20,
                  .height = 17,
                  .components = components,
                  .quality = 95,
                  .progressive = progressive,
                  .pixels = {}};
  for (std::uint32_t row = 0; row < image.height; ++row) {
    for (std::uint32_t column = 0; column < image.width; ++column) {
      for (int component = 0; component < components; ++component) {
        image.pixels += static_cast<char>(40 + 5 * row + 3 * column +
                                          20 * static_cast<std::uint32_t>(component));
      }
    }
  }
  return image;
}

int largest_difference(const std::string& a, const std::string& b) {
  int largest = a.size() == b.size() ? 0 : 256;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    largest = std::max(
        largest, std::abs(static_cast<unsigned char>(a[i]) - static_cast<unsigned char>(b[i])));
  }
  return largest;
}

TEST(DecodePng, GivesTheFilesPixelsChannelByChannel) {
  for (const bool interlaced : {false, true}) {
    const DecodedImage image = decode(rgb_png(interlaced));
    EXPECT_EQ(image.shape.channels, 3);
    EXPECT_EQ(image.shape.height, 7);
    EXPECT_EQ(image.shape.width, 9);
    EXPECT_EQ(text_of(image), planes(some_bytes(189), 3)) << "interlaced: " << interlaced;
  }
}

TEST(DecodePng, TurnsEveryKindIntoGrayOrRgb) {
  // 3 x 2 pixels; the remaining bits of the last byte of a row are padding.
  const PngImage gray_of_2_bits{
      .width = 3, .height = 2, .bit_depth = 2, .color_type = 0, .pixels = "\x1B\xE4"};
  EXPECT_EQ(text_of(decode(png_bytes(gray_of_2_bits), {.channels = 1})),
            std::string("\x00\x55\xAA\xFF\xAA\x55", 6));
  const PngImage gray_of_1_bit{
      .width = 3, .height = 2, .bit_depth = 1, .color_type = 0, .pixels = "\xA0\x40"};
  EXPECT_EQ(text_of(decode(png_bytes(gray_of_1_bit))),
            planes(std::string("\xFF\xFF\xFF\0\0\0\xFF\xFF\xFF\0\0\0\xFF\xFF\xFF\0\0\0", 18), 3));
  const PngImage gray_of_16_bits{
      .width = 2, .height = 1, .bit_depth = 16, .color_type = 0, .pixels = "\x12\xFF\x34\x01"};
  EXPECT_EQ(text_of(decode(png_bytes(gray_of_16_bits), {.channels = 1})), "\x12\x34");
  const PngImage rgb_of_16_bits{.width = 1,
                                .height = 1,
                                .bit_depth = 16,
                                .color_type = 2,
                                .pixels = "\x12\xFF\x34\x01\x56\x78"};
  EXPECT_EQ(text_of(decode(png_bytes(rgb_of_16_bits))), "\x12\x34\x56");
  const PngImage palette{.width = 3,
                         .height = 1,
                         .bit_depth = 4,
                         .color_type = 3,
                         .palette = "abcdefghi",
                         .pixels = "\x20\x10"};
  EXPECT_EQ(text_of(decode(png_bytes(palette))), planes("ghiabcdef", 3));
  const PngImage gray_and_alpha{.width = 2, .height = 1, .color_type = 4, .pixels = "aXbY"};
  EXPECT_EQ(text_of(decode(png_bytes(gray_and_alpha), {.channels = 1})), "ab");
  const PngImage rgb_and_alpha{.width = 2, .height = 1, .color_type = 6, .pixels = "abcXdefY"};
  EXPECT_EQ(text_of(decode(png_bytes(rgb_and_alpha))), planes("abcdef", 3));
}

TEST(DecodeImage, GrayIsTheLumaOfColors) {
  const PngImage image{
      .width = 4, .height = 1, .pixels = std::string("\xFF\0\0\0\xFF\0\0\0\xFF\xFF\xFF\xFF", 12)};
  EXPECT_EQ(text_of(decode(png_bytes(image), {.channels = 1})), "\x4C\x96\x1D\xFF");
}

TEST(DecodeJpeg, GivesNearlyThePixelsThatWereEncoded) {
  for (const int components : {1, 3}) {
    for (const bool progressive : {false, true}) {
      const JpegImage image = slope(components, progressive);
      const DecodedImage decoded = decode(jpeg_bytes(image), {.channels = components});
      EXPECT_EQ(decoded.shape.channels, components);
      EXPECT_EQ(decoded.shape.height, 17);
      EXPECT_EQ(decoded.shape.width, 20);
      EXPECT_LE(largest_difference(text_of(decoded),
                                   planes(image.pixels, static_cast<std::size_t>(components))),
                6);
    }
  }
}

TEST(DecodeJpeg, ProgressiveOnesHaveTheSamePixels) {
  EXPECT_EQ(text_of(decode(jpeg_bytes(slope(3, true)))),
            text_of(decode(jpeg_bytes(slope(3, false)))));
}

TEST(DecodeJpeg, InksBecomeColors) {
  // Without ink; cyan alone; half black.
  for (const auto& [inks, rgb] :
       {std::pair<std::string, std::string>("\xFF\xFF\xFF\xFF", "\xFF\xFF\xFF"),
        {std::string("\0\xFF\xFF\xFF", 4), std::string("\0\xFF\xFF", 3)},
        {"\xFF\xFF\xFF\x80", "\x80\x80\x80"}}) {
    JpegImage image{.width = 8, .height = 8, .components = 4, .quality = 100, .pixels = {}};
    std::string expected;
    for (int pixel = 0; pixel < 64; ++pixel) {
      image.pixels += inks;
      expected += rgb;
    }
    EXPECT_LE(largest_difference(text_of(decode(jpeg_bytes(image))), planes(expected, 3)), 2);
  }
}

TEST(DecodeJpeg, ExifAndWhatElseIsNoPixelIsLeftAside) {
  const std::string plain = jpeg_bytes(slope());
  // Orientation 6 would turn the image by a quarter.
  const std::string exif(
      "\xFF\xE1\x00\x22"
      "Exif\0\0MM\0\x2A\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0",
      36);
  std::string turned = plain;
  turned.insert(2, exif);
  EXPECT_EQ(text_of(decode(turned)), text_of(decode(plain)));
  EXPECT_EQ(text_of(decode(plain + "rest")), text_of(decode(plain)));
}

TEST(DecodeImage, NoBeginningOfAFileIsAnImage) {
  for (const std::string& file : {jpeg_bytes(slope()),
                                  jpeg_bytes(slope(3, true)),
                                  jpeg_bytes(slope(4)),
                                  rgb_png(),
                                  rgb_png(true)}) {
    ASSERT_NO_THROW((void)decode(file));
    for (std::size_t n_bytes = 0; n_bytes < file.size(); ++n_bytes) {
      const CaughtError error = error_of_bytes(file.substr(0, n_bytes));
      ASSERT_EQ(error.code, ErrorCode::kCorruptData) << n_bytes << " of " << file.size();
      ASSERT_THAT(error.message, HasSubstr("file: ")) << n_bytes;
    }
  }
}

TEST(DecodeImage, DamageIsAnErrorOrAnotherImage) {
  int n_errors = 0;
  for (const std::string& file : {jpeg_bytes(slope()), jpeg_bytes(slope(3, true)), rgb_png()}) {
    for (std::size_t at = 0; at < file.size(); ++at) {
      for (const int change : {0x01, 0x80, 0xFF}) {
        std::string damaged = file;
        damaged[at] = static_cast<char>(damaged[at] ^ change);
        try {
          const DecodedImage image = decode(damaged);
          EXPECT_EQ(image.pixels.size(), static_cast<std::size_t>(image.shape.n_pixels()));
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kCorruptData) << error.what();
          ++n_errors;
        }
      }
    }
  }
  EXPECT_GT(n_errors, 500);
}

TEST(DecodePng, EveryChangeOfItsPixelsIsNoticed) {
  const std::string file = rgb_png();
  const std::size_t data = file.find("IDAT");
  ASSERT_NE(data, std::string::npos);
  for (std::size_t at = data; at < file.size(); ++at) {
    std::string damaged = file;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    EXPECT_EQ(error_of_bytes(damaged).code, ErrorCode::kCorruptData) << at;
  }
}

TEST(DecodeImage, SaysWhereAFileEnds) {
  const std::string jpeg = jpeg_bytes(slope());
  EXPECT_EQ(error_of_bytes(jpeg.substr(0, jpeg.size() - 2)).message,
            "file: the JPEG image can't be decoded, near offset " +
                std::to_string(jpeg.size() - 2) + " of " + std::to_string(jpeg.size() - 2) +
                " bytes: it ends early");
  const std::string png = rgb_png();
  EXPECT_EQ(error_of_bytes(png.substr(0, png.size() - 12)).message,
            "file: the PNG image can't be decoded, near offset " + std::to_string(png.size() - 12) +
                " of " + std::to_string(png.size() - 12) + " bytes: it ends early");
}

// libjpeg fills the rest with gray and only warns.
TEST(DecodeJpeg, PixelsThatAreMadeUpAreAnError) {
  const std::string file = jpeg_bytes(slope());
  const std::size_t scan = file.find("\xFF\xDA");
  for (std::size_t n_bytes = scan + 20; n_bytes + 4 < file.size(); ++n_bytes) {
    const CaughtError error = error_of_bytes(file.substr(0, n_bytes) + "\xFF\xD9");
    EXPECT_EQ(error.code, ErrorCode::kCorruptData) << n_bytes << " of " << file.size();
  }
}

TEST(DecodeImage, RefusesLargeImages) {
  for (const std::string& file :
       {jpeg_bytes(slope()), png_bytes({.width = 20, .height = 17, .pixels = some_bytes(1020)})}) {
    EXPECT_NO_THROW((void)decode(file, {.max_pixels = 340}));
    EXPECT_THAT(error_of_bytes(file, {.max_pixels = 339}).message,
                HasSubstr("file: an image of 17 x 20 pixels (height x width); up to 339 pixels"));
  }
}

// A few bytes without pixels must not allocate gigabytes.
TEST(DecodeImage, AFileThatSaysItIsFarLargerThanItsBytesAreGetsNoMemory) {
  for (const bool progressive : {false, true}) {
    std::string jpeg = jpeg_bytes(slope(3, progressive));
    const std::size_t frame = jpeg.find(progressive ? "\xFF\xC2" : "\xFF\xC0");
    ASSERT_NE(frame, std::string::npos);
    jpeg.replace(frame + 5, 4, "\x1F\xFF\x1F\xFF");
    EXPECT_THAT(error_of_bytes(jpeg).message,
                HasSubstr("too few for the 8191 x 8191 pixels (height x width) of its header"));
  }
  for (const bool interlaced : {false, true}) {
    // The check sum of the header for 8000 x 8000 pixels.
    std::string png = rgb_png(interlaced);
    png.replace(16, 8, std::string("\0\0\x1F\x40\0\0\x1F\x40", 8));
    png.replace(29, 4, interlaced ? "\xFE\x94\x0A\x35" : "\x89\x93\x3A\xA3");
    EXPECT_THAT(error_of_bytes(png).message,
                HasSubstr("too few for the 8000 x 8000 pixels (height x width) of its header"));
  }
}

TEST(DecodeJpeg, ManyScansAreRefused) {
  JpegImage image = slope(1);
  const std::string expected = text_of(decode(jpeg_bytes(image)));
  image.scans_per_coefficient = 1;
  EXPECT_EQ(text_of(decode(jpeg_bytes(image))), expected);
  image.scans_per_coefficient = 2;
  EXPECT_THAT(error_of_bytes(jpeg_bytes(image)).message, HasSubstr("it has more than 100 scans"));
}

TEST(DecodeImage, NamesWhatIsNoImage) {
  EXPECT_EQ(error_of_bytes("").message, "file: is neither a JPEG nor a PNG image: it is empty");
  EXPECT_THAT(error_of_bytes("GIF89a").message, HasSubstr("it may be GIF"));
  EXPECT_THAT(error_of_bytes("<svg>").message, HasSubstr("it may be text"));
  EXPECT_THAT(error_of_bytes("<!DOCTYPE html>").message, HasSubstr("is a web page"));
  EXPECT_THAT(error_of_bytes("\xFF\xD8").message, HasSubstr("it begins with ff d8"));
  EXPECT_EQ(error_of_bytes("x").code, ErrorCode::kCorruptData);
}

TEST(DecodeImage, ExplainsImpossibleOptions) {
  for (const DecodeOptions options :
       {DecodeOptions{.channels = 2}, DecodeOptions{.max_pixels = 0}}) {
    const CaughtError error = error_of_bytes(rgb_png(), options);
    EXPECT_EQ(error.code, ErrorCode::kInvalidArgument);
    EXPECT_THAT(error.message, HasSubstr("channels must be 1 (gray) or 3 (RGB)"));
  }
}

TEST(ReadImage, NamesTheFile) {
  const test::TemporaryFolder files;
  EXPECT_EQ(text_of(read_image(files.write("a.png", rgb_png()))), planes(some_bytes(189), 3));
  const std::string path = files.write("a.jpg", "none");
  EXPECT_THAT(error_of([&] { (void)read_image(path); }).message,
              AllOf(HasSubstr(path), HasSubstr("it begins with 6e 6f 6e 65")));
  EXPECT_EQ(error_of([&] { (void)read_image(files.path() + "/b.png"); }).code,
            ErrorCode::kNotFound);
  EXPECT_EQ(error_of([&] { (void)read_image(files.path()); }).code, ErrorCode::kInvalidArgument);
}

TEST(DecodeImage, OfAShardsSamples) {
  const test::TemporaryFolder files;
  const std::string shard =
      files.write("a.tar",
                  datasets::testing::tar_entry("1.png", rgb_png()) +
                      datasets::testing::tar_entry("2.png", "x") + datasets::testing::tar_end());
  ShardReader reader({shard});
  std::vector<std::string> results;
  while (const std::optional<ShardSample> sample = reader.next()) {
    const std::string name =
        sample->shard + ": sample " + sample->key + ", at offset " + std::to_string(sample->offset);
    results.push_back(error_of([&] { (void)decode_image(sample->parts.at("png"), name); }).message);
  }
  EXPECT_THAT(results,
              ::testing::ElementsAre("(nothing was thrown)",
                                     shard + ": sample 2, at offset 1024: is neither a JPEG nor a "
                                             "PNG image: it begins with 78"));
}

class RealImages : public ::testing::TestWithParam<const char*> {};

// Images of CIFAR as PNG files, without loss, and as JPEG files, with a small loss.
TEST_P(RealImages, ComeBackFromFiles) {
  if (!datasets::testing::has_real_data(GetParam())) {
    GTEST_SKIP() << datasets::testing::why_skipped(GetParam());
  }
  const std::string path = datasets::testing::real_data_path(GetParam());
  const LabeledImages images = read_cifar(std::span(&path, 1), CifarKind::kCifar10);
  std::int64_t lost = 0;
  for (std::int64_t index = 0; index < images.size(); ++index) {
    const std::span<const std::byte> image = images.image(index);
    std::string pixels;
    for (std::size_t pixel = 0; pixel < 1024; ++pixel) {
      for (const std::size_t plane : {0U, 1024U, 2048U}) {
        pixels += static_cast<char>(image[plane + pixel]);
      }
    }
    const DecodedImage png = decode(png_bytes({.width = 32, .height = 32, .pixels = pixels}));
    ASSERT_TRUE(std::ranges::equal(png.pixels, image)) << index;
    const DecodedImage jpeg =
        decode(jpeg_bytes({.width = 32, .height = 32, .quality = 95, .pixels = pixels}));
    ASSERT_EQ(jpeg.pixels.size(), image.size());
    for (std::size_t i = 0; i < image.size(); ++i) {
      lost += std::abs(std::to_integer<int>(jpeg.pixels[i]) - std::to_integer<int>(image[i]));
    }
  }
  EXPECT_LT(static_cast<double>(lost) / static_cast<double>(images.pixels.size()), 6);
}

INSTANTIATE_TEST_SUITE_P(Files,
                         RealImages,
                         ::testing::Values("cifar10_jpeg_subset_train_10000.bin.gz",
                                           "cifar10_jpeg_subset_test_2000.bin.gz"));

}  // namespace
}  // namespace unisono::datasets
