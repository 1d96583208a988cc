#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace unisono::datasets {

/// Samples of one channel, from -1 to 1.
struct Sound {
  std::int64_t sample_rate = 0;  ///< Per second.
  std::vector<float> samples;
  /// True if the header states no size, because the writer wrote to a pipe or died. The samples are
  /// all bytes up to the end of the file; some samples may be missing.
  bool is_streamed = false;
};

/// Decodes a WAV, RF64 or BW64 file of one channel and at most 1 GiB. Errors show `name` as the
/// source.
///
/// Samples may be integers of 8, 16, 24 or 32 bits, which map the minimum to -1, floating point,
/// A-law or mu-law. Thread-safe.
///
/// Throws Error: kInvalidArgument for a negative `sample_rate`; kCorruptData, with the offset if
/// known, for another format, a larger or truncated file, a file without samples, several channels,
/// a rate other than `sample_rate` (0: any), and samples that are infinite or NaN.
[[nodiscard]] Sound decode_wav(std::span<const std::byte> file,
                               const std::string& name,
                               std::int64_t sample_rate = 0);

/// Decodes a WAV file of up to 1 GiB.
///
/// Throws Error as decode_wav(), and kNotFound, kSystem; kInvalidArgument for a folder or device.
[[nodiscard]] Sound read_wav(const std::string& path, std::int64_t sample_rate = 0);

}  // namespace unisono::datasets
