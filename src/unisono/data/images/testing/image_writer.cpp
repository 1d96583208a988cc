#include "unisono/data/images/testing/image_writer.h"

#include <png.h>

// clang-format off
#include <cstdio>  // jpeglib.h needs it
#include <jpeglib.h>
// clang-format on

#include <cstddef>
#include <cstdlib>
#include <string>
#include <vector>

#include "unisono/base/error.h"

namespace unisono::data::testing {
namespace {

// From the highest bits of each coefficient to the lowest.
std::vector<jpeg_scan_info> scan_script(int scans_per_coefficient) {
  std::vector<jpeg_scan_info> scans;
  for (int low_bit = scans_per_coefficient - 1; low_bit >= 0; --low_bit) {
    for (int coefficient = 0; coefficient < DCTSIZE2; ++coefficient) {
      const bool is_first = low_bit == scans_per_coefficient - 1;
      scans.push_back({.comps_in_scan = 1,
                       .component_index = {},
                       .Ss = coefficient,
                       .Se = coefficient,
                       .Ah = is_first ? 0 : low_bit + 1,
                       .Al = low_bit});
    }
  }
  return scans;
}

}  // namespace

// The libraries' own reports of errors end the program.
std::string png_bytes(const PngImage& image) {
  std::string bytes;
  png_structp png = ::png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  UNISONO_CHECK(png != nullptr, "png_create_write_struct");
  png_infop info = ::png_create_info_struct(png);
  UNISONO_CHECK(info != nullptr, "png_create_info_struct");
  ::png_set_write_fn(
      png,
      &bytes,
      [](png_structp writer, png_bytep from, std::size_t n_bytes) {
        static_cast<std::string*>(::png_get_io_ptr(writer))
            ->append(reinterpret_cast<const char*>(from), n_bytes);
      },
      nullptr);
  ::png_set_IHDR(png,
                 info,
                 image.width,
                 image.height,
                 image.bit_depth,
                 image.color_type,
                 image.interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT,
                 PNG_FILTER_TYPE_DEFAULT);
  std::vector<png_color> palette;
  for (std::size_t at = 0; at + 2 < image.palette.size(); at += 3) {
    palette.push_back({.red = static_cast<png_byte>(image.palette[at]),
                       .green = static_cast<png_byte>(image.palette[at + 1]),
                       .blue = static_cast<png_byte>(image.palette[at + 2])});
  }
  if (!palette.empty()) {
    ::png_set_PLTE(png, info, palette.data(), static_cast<int>(palette.size()));
  }
  ::png_write_info(png, info);
  const std::size_t n_row = ::png_get_rowbytes(png, info);
  UNISONO_CHECK(n_row * image.height == image.pixels.size(), "pixels of another size");
  std::string pixels = image.pixels;
  std::vector<png_bytep> rows;
  for (std::size_t row = 0; row < image.height; ++row) {
    rows.push_back(reinterpret_cast<png_bytep>(&pixels[row * n_row]));
  }
  ::png_write_image(png, rows.data());
  ::png_write_end(png, info);
  ::png_destroy_write_struct(&png, &info);
  return bytes;
}

std::string jpeg_bytes(const JpegImage& image) {
  jpeg_compress_struct state{};
  jpeg_error_mgr errors{};
  state.err = ::jpeg_std_error(&errors);
  ::jpeg_create_compress(&state);
  unsigned char* memory = nullptr;
  unsigned long n_bytes = 0;
  ::jpeg_mem_dest(&state, &memory, &n_bytes);
  state.image_width = image.width;
  state.image_height = image.height;
  state.input_components = image.components;
  state.in_color_space =
      image.components == 1 ? JCS_GRAYSCALE : (image.components == 3 ? JCS_RGB : JCS_CMYK);
  ::jpeg_set_defaults(&state);
  ::jpeg_set_quality(&state, image.quality, TRUE);
  if (image.progressive) {
    ::jpeg_simple_progression(&state);
  }
  const std::vector<jpeg_scan_info> scans = scan_script(image.scans_per_coefficient);
  if (!scans.empty()) {
    state.scan_info = scans.data();
    state.num_scans = static_cast<int>(scans.size());
  }
  ::jpeg_start_compress(&state, TRUE);
  std::string pixels = image.pixels;
  const std::size_t n_row = std::size_t{image.width} * static_cast<std::size_t>(image.components);
  UNISONO_CHECK(n_row * image.height == pixels.size(), "pixels of another size");
  while (state.next_scanline < state.image_height) {
    auto* row = reinterpret_cast<JSAMPROW>(&pixels[state.next_scanline * n_row]);
    ::jpeg_write_scanlines(&state, &row, 1);
  }
  ::jpeg_finish_compress(&state);
  std::string bytes(reinterpret_cast<const char*>(memory), n_bytes);
  ::jpeg_destroy_compress(&state);
  std::free(memory);
  return bytes;
}

}  // namespace unisono::data::testing
