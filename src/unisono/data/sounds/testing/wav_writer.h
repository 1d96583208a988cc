#pragma once

#include <cstdint>
#include <string>

namespace unisono::data::testing {

/// A WAV file to be; `samples` are the bytes of its chunk "data".
struct WavFile {
  std::uint16_t format = 1;  ///< 1 whole numbers, 3 floating point, 6 A-law, 7 mu-law
  std::uint16_t channels = 1;
  std::uint32_t sample_rate = 8000;
  std::uint16_t bits = 16;
  std::string samples = {};
};

[[nodiscard]] std::string wav_bytes(const WavFile& file);

/// A chunk of a RIFF file: its name of four letters, its length, its bytes.
[[nodiscard]] std::string riff_chunk(const std::string& name, const std::string& bytes);

/// `chunks` in a RIFF file of kind WAVE.
[[nodiscard]] std::string wave_of(const std::string& chunks);

/// Little-endian, as WAV files have them.
template <class Number>
[[nodiscard]] std::string raw_bytes(Number number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

}  // namespace unisono::data::testing
