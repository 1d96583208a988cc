#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace unisono::datasets::testing {

/// Bytes of an IDX file: a header, then `elements`.
[[nodiscard]] std::string idx_bytes(std::uint8_t type_code,
                                    const std::vector<std::uint32_t>& dims,
                                    const std::string& elements);

/// Compresses `bytes` to one gzip member.
[[nodiscard]] std::string gzip(const std::string& bytes);

/// Bytes 0, 7, 14, ... modulo 251.
[[nodiscard]] std::string some_bytes(std::size_t n_bytes);

/// Header and content of a ustar entry, padded to whole blocks.
[[nodiscard]] std::string tar_entry(const std::string& name,
                                    const std::string& content,
                                    char type = '0',
                                    const std::string& prefix = "");

/// A header with the 12 bytes `size` as size, and a valid check sum.
[[nodiscard]] std::string tar_header(const std::string& name,
                                     const std::string& size,
                                     char type = '0',
                                     const std::string& prefix = "");

/// Sets the check sum of a header block.
[[nodiscard]] std::string with_sum(std::string block);

/// A pax record: "LENGTH KEY=VALUE\n".
[[nodiscard]] std::string pax_record(const std::string& key, const std::string& value);

/// The two blocks of zeros at the end of an archive.
[[nodiscard]] std::string tar_end();

/// Content of a PNG file. `pixels` are rows in the form of the file; a row begins at a byte.
struct PngImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int bit_depth = 8;
  int color_type = 2;  ///< 0 gray, 2 RGB, 3 palette, 4 gray and alpha, 6 RGB and alpha
  bool interlaced = false;
  std::string palette = {};  ///< RGB, RGB, ...
  std::string pixels = {};
};

/// Bytes of the PNG file.
[[nodiscard]] std::string png_bytes(const PngImage& image);

/// Content of a JPEG file. `pixels` are rows with a byte per component of a pixel.
struct JpegImage {
  std::uint32_t width = 0;
  std::uint32_t height = 0;
  int components = 3;  ///< 1 gray, 3 RGB, 4 CMYK as Adobe writes it, 255 for no ink
  int quality = 90;
  bool progressive = false;
  /// Above 0, for gray images: a scan for each coefficient and for this number of bits of it.
  int scans_per_coefficient = 0;
  std::string pixels = {};
};

/// Bytes of the JPEG file.
[[nodiscard]] std::string jpeg_bytes(const JpegImage& image);

/// Content of a WAV file. `samples` are the bytes of the chunk "data".
struct WavFile {
  std::uint16_t format = 1;  ///< 1 whole numbers, 3 floating point, 6 A-law, 7 mu-law
  std::uint16_t channels = 1;
  std::uint32_t sample_rate = 8000;
  std::uint16_t bits = 16;
  std::string samples = {};
};

/// Bytes of the WAV file.
[[nodiscard]] std::string wav_bytes(const WavFile& file);

/// A chunk of a RIFF file: a name of four letters, the length, the bytes.
[[nodiscard]] std::string riff_chunk(const std::string& name, const std::string& bytes);

/// A RIFF file of kind WAVE with `chunks`.
[[nodiscard]] std::string wave_of(const std::string& chunks);

/// Little-endian bytes of a number of a WAV file.
template <class Number>
[[nodiscard]] std::string raw_bytes(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

/// Path of a file of real data. Tests skip with why_skipped() unless has_real_data().
[[nodiscard]] std::string real_data_path(const std::string& name);

/// True if the file of real data exists.
[[nodiscard]] bool has_real_data(const std::string& name);

/// Message of a skipped test.
[[nodiscard]] std::string why_skipped(const std::string& name);

}  // namespace unisono::datasets::testing
