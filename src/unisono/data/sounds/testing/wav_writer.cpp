#include "unisono/data/sounds/testing/wav_writer.h"

#include <cstdint>
#include <string>

namespace unisono::data::testing {

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

}  // namespace unisono::data::testing
