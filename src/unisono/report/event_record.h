#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "unisono/report/progress.h"

namespace unisono::report {

/// Returns the CRC-32C check sum (Castagnoli's polynomial, as in iSCSI). zlib's crc32() uses
/// another polynomial.
///
/// Source: RFC 3720, appendix B.4.
[[nodiscard]] std::uint32_t crc32c(std::string_view bytes);

// The records of a TensorBoard event file. A record consists of the length of an Event (u64), the
// masked CRC-32C of the length (u32), the Event, and the masked CRC-32C of the Event; numbers are
// little-endian. An Event is a Protocol Buffers message, of which only a few fields are written.
//
// Source: tensorflow/core/util/event.proto and framework/summary.proto (field numbers),
// tensorflow/core/lib/io/record_writer.h (frame).

/// Time of an event, and the number of steps before it.
struct EventTime {
  double unix_seconds = 0;
  std::int64_t step = 0;
};

/// Returns the first record of a file.
[[nodiscard]] std::string version_record(const EventTime& time);

/// Returns a record for a training that continues from a checkpoint: this step and later steps in
/// earlier files are void.
[[nodiscard]] std::string restart_record(const EventTime& time);

/// Returns a record of values in 32 bits; a larger value becomes infinite.
[[nodiscard]] std::string scalars_record(const EventTime& time, std::span<const NamedValue> values);

/// Returns a record of a text, which TensorBoard shows as Markdown.
[[nodiscard]] std::string text_record(const EventTime& time,
                                      std::string_view name,
                                      std::string_view text);

}  // namespace unisono::report
