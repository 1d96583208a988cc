#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono {

/// Samples of one channel, from -1 to 1.
struct Sound {
  std::int64_t sample_rate = 0;  ///< Per second.
  std::vector<float> samples;
  /// The header states no size, as a program leaves it that writes to a pipe or dies: the samples
  /// are all bytes up to the end of the file, and some may be missing.
  bool is_streamed = false;
};

/// Decodes a WAV file of one channel, also RF64 and BW64, of up to 1 GiB; `name` says in errors
/// where it is from.
///
/// Samples may be whole numbers of 8, 16, 24 or 32 bits, of which the lowest becomes -1, floating
/// point, A-law or mu-law. Thread-safe.
///
/// Throws Error: kInvalidArgument for a negative `sample_rate`; kCorruptData, with the offset where
/// there is one, for what is no WAV file, is larger, ends early, or has no samples, other numbers
/// of channels, another rate than `sample_rate` (0: any), or samples that are infinite or no
/// numbers.
[[nodiscard]] Sound decode_wav(std::span<const std::byte> file,
                               const std::string& name,
                               std::int64_t sample_rate = 0);

/// Decodes a WAV file of up to 1 GiB.
///
/// Throws Error as decode_wav(), and kNotFound, kSystem; kInvalidArgument for a folder or device.
[[nodiscard]] Sound read_wav(const std::string& path, std::int64_t sample_rate = 0);

}  // namespace unisono
