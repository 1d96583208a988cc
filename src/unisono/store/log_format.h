#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "unisono/store/change.h"

namespace unisono::store {

// The file of a FileStore: a header, then a record for each change. Integers are little-endian,
// checksums are CRC-32.
//
//   header: 8 bytes magic, u32 version, 16 bytes id, u32 checksum of all before
//   record: u32 payload's length, u32 payload's checksum, u32 checksum of both, payload
//
// The payload is a change, as encode() of change.h writes it. The length has a checksum of its own:
// so a record whose end is missing is told from one whose length was damaged.

inline constexpr std::size_t kLogHeaderBytes = 32;
inline constexpr std::uint32_t kLogVersion = 1;

/// Random; tells a file from another of the same name.
using LogId = std::array<std::byte, 16>;

/// What the first bytes of a file, at most kLogHeaderBytes, are.
enum class LogStart : std::uint8_t {
  kWhole,
  kTorn,          ///< Nothing, or the beginning of a header whose writer was stopped.
  kOtherVersion,  ///< Another version of this format.
  kForeign        ///< No header of ours, or a damaged one.
};

[[nodiscard]] std::vector<std::byte> encode_log_header(const LogId& id);

[[nodiscard]] LogStart classify_log_start(std::span<const std::byte> bytes);

[[nodiscard]] std::vector<std::byte> encode_log_record(const Change& change);

enum class RecordState : std::uint8_t {
  kWhole,
  kTorn,    ///< Its end is missing: more is to come, or its writer was stopped.
  kDamaged  ///< No writer wrote that.
};

struct LogRecord {
  RecordState state = RecordState::kTorn;
  std::size_t n_bytes = 0;  ///< Of all of it, as far as that is known: of a torn one at least.
  Change change = {};       ///< Of a whole one.
};

/// Reads the record that `bytes` begin with.
[[nodiscard]] LogRecord read_log_record(std::span<const std::byte> bytes);

}  // namespace unisono::store
