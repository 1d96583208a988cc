#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace unisono::data {

/// The parts of a WAV file that a decoder needs; they lie in the file's bytes.
struct WavChunks {
  std::span<const std::byte> format;
  std::span<const std::byte> samples;
  /// The header states no size; `samples` go to the end of the file.
  bool is_streamed = false;
};

/// Walks over the chunks of a WAV file (RIFF, RF64 or BW64) up to its samples, all of which must be
/// there unless the header states no size.
///
/// libsndfile takes what it finds for the whole, and reads much besides: this function names what
/// is missing, and lets only plain formats through. Throws Error(kCorruptData), with the offset.
[[nodiscard]] WavChunks find_wav_chunks(std::span<const std::byte> file, const std::string& name);

/// Header of a plain WAV file of these chunks, up to its samples, of which there are at most 1 GiB.
[[nodiscard]] std::vector<std::byte> plain_wav_header(const WavChunks& chunks);

}  // namespace unisono::data
