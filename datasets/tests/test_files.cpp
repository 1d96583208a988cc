#include "tests/test_files.h"

#include <png.h>
#include <zconf.h>
#include <zlib.h>

// clang-format off
#include <cstdio>  // needed by jpeglib.h
#include <jpeglib.h>
// clang-format on

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "unisono/base/config.h"
#include "unisono/base/error.h"

namespace unisono::datasets::testing {

std::string idx_bytes(std::uint8_t type_code,
                      const std::vector<std::uint32_t>& dims,
                      const std::string& elements) {
  std::string bytes{'\0', '\0', static_cast<char>(type_code), static_cast<char>(dims.size())};
  for (const std::uint32_t dim : dims) {
    for (const int shift : {24, 16, 8, 0}) {
      bytes += static_cast<char>(dim >> shift & 0xff);
    }
  }
  return bytes + elements;
}

std::string gzip(const std::string& bytes) {
  z_stream stream{};
  UNISONO_CHECK(
      ::deflateInit2(&stream, 9, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK,
      "deflateInit2");
  std::string packed(::deflateBound(&stream, bytes.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  stream.avail_in = static_cast<uInt>(bytes.size());
  stream.next_out = reinterpret_cast<Bytef*>(packed.data());
  stream.avail_out = static_cast<uInt>(packed.size());
  UNISONO_CHECK(::deflate(&stream, Z_FINISH) == Z_STREAM_END, "deflate");
  packed.resize(stream.total_out);
  ::deflateEnd(&stream);
  return packed;
}

std::string some_bytes(std::size_t n_bytes) {
  std::string bytes;
  for (std::size_t i = 0; i < n_bytes; ++i) {
    bytes += static_cast<char>(i * 7 % 251);
  }
  return bytes;
}

namespace {

constexpr std::size_t kBlockBytes = 512;

std::string octal(std::size_t value, int n_digits) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%0*zo", n_digits, value);
  return text.data();
}

}  // namespace

std::string tar_header(const std::string& name,
                       const std::string& size,
                       char type,
                       const std::string& prefix) {
  std::string block(kBlockBytes, '\0');
  block.replace(0, name.size(), name);
  block.replace(100, 7, "0000644");
  block.replace(124, size.size(), size);
  block.replace(136, 11, "00000000000");
  block[156] = type;
  block.replace(257, 8, std::string("ustar\00000", 8));
  block.replace(345, prefix.size(), prefix);
  return with_sum(block);
}

std::string with_sum(std::string block) {
  block.replace(148, 8, "        ");
  std::size_t sum = 0;
  for (const char byte : block) {
    sum += static_cast<unsigned char>(byte);
  }
  block.replace(148, 7, octal(sum, 6) + std::string(1, '\0'));
  return block;
}

std::string tar_entry(const std::string& name,
                      const std::string& content,
                      char type,
                      const std::string& prefix) {
  const std::size_t n_padding = (kBlockBytes - content.size() % kBlockBytes) % kBlockBytes;
  return tar_header(name, octal(content.size(), 11), type, prefix) + content +
         std::string(n_padding, '\0');
}

std::string pax_record(const std::string& key, const std::string& value) {
  const std::string rest = " " + key + "=" + value + "\n";
  std::size_t n_bytes = rest.size() + 1;
  while (std::to_string(n_bytes).size() + rest.size() != n_bytes) {
    ++n_bytes;
  }
  return std::to_string(n_bytes) + rest;
}

std::string tar_end() {
  return std::string(2 * kBlockBytes, '\0');
}

namespace {

// The scans go from the highest bit of each coefficient to the lowest.
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

// The error functions of the libraries end the program.
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

std::string riff_chunk(const std::string& name, const std::string& bytes) {
  return name + raw_bytes(static_cast<std::uint32_t>(bytes.size())) + bytes +
         std::string(bytes.size() % 2, '\0');
}

std::string wave_of(const std::string& chunks) {
  return riff_chunk("RIFF", "WAVE" + chunks);
}

std::string wav_bytes(const WavFile& file) {
  const auto n_frame = static_cast<std::uint16_t>(file.channels * file.bits / 8);
  return wave_of(riff_chunk("fmt ",
                            raw_bytes(file.format) + raw_bytes(file.channels) +
                                raw_bytes(file.sample_rate) +
                                raw_bytes(file.sample_rate * n_frame) + raw_bytes(n_frame) +
                                raw_bytes(file.bits)) +
                 riff_chunk("data", file.samples));
}

std::string real_data_path(const std::string& name) {
  return process_environment()("UNISONO_TEST_DATA_DIR").value_or(UNISONO_DEFAULT_DATA_DIR) + "/" +
         name;
}

bool has_real_data(const std::string& name) {
  return std::filesystem::exists(real_data_path(name));
}

std::string why_skipped(const std::string& name) {
  return real_data_path(name) + " is not there; UNISONO_TEST_DATA_DIR can name its folder";
}

}  // namespace unisono::datasets::testing
