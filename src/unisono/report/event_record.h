#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "unisono/report/named_value.h"

namespace unisono::report {

// The records of a TensorBoard event file. Each is the length of an Event (u64), its masked CRC-32C
// (u32), the Event, its masked CRC-32C; numbers are little-endian. An Event is a message of
// Protocol Buffers, of which these few fields are written.
//
// Source: tensorflow/core/util/event.proto and framework/summary.proto (field numbers),
// tensorflow/core/lib/io/record_writer.h (frame).

/// When something was, and after how many steps.
struct EventTime {
  double unix_seconds = 0;
  std::int64_t step = 0;
};

/// What a file begins with.
[[nodiscard]] std::string version_record(const EventTime& time);

/// A training goes on from a checkpoint: what earlier files have of this step and later ones is
/// void.
[[nodiscard]] std::string restart_record(const EventTime& time);

/// Values are kept in 32 bits; what is too large for them is infinite.
[[nodiscard]] std::string scalars_record(const EventTime& time, std::span<const NamedValue> values);

/// TensorBoard shows `text` as Markdown.
[[nodiscard]] std::string text_record(const EventTime& time,
                                      std::string_view name,
                                      std::string_view text);

}  // namespace unisono::report
