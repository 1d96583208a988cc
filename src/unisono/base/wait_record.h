#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono {

/// Environment variable with the path of the file in which a rank publishes its long waits for the
/// launcher. The file has kWaitFileBytes bytes, and holds checked() bytes of a WaitRecord, or
/// zeros. If the variable is empty, no launcher reads waits.
inline constexpr const char* kWaitFileVariable = "UNISONO_WAIT_FILE";

/// Size of a wait file in bytes.
inline constexpr std::size_t kWaitFileBytes = 64 << 10;

/// A wait for other ranks that lasted long enough to be reported as a stall.
struct LongWait {
  Deadline::Clock::time_point since;  ///< No data has arrived since this time.
  /// Time at which the rank last observed that the wait continues.
  Deadline::Clock::time_point seen;
  std::string operation;  ///< Description such as "all_reduce #3 (f32[8], sum)".
  std::vector<int> late;  ///< Late ranks, as ranks in the job; empty if any rank may end the wait.
};

/// Waits of a rank, in the form that the launcher reads.
struct WaitRecord {
  pid_t pid = 0;
  std::vector<LongWait> waits = {};
};

/// Serializes a record. Truncates long lists of waits, late ranks and long texts, so that the
/// result fits into the file.
[[nodiscard]] std::vector<std::byte> encode(const WaitRecord& record);

/// Returns std::nullopt if the bytes are not a valid record.
[[nodiscard]] std::optional<WaitRecord> decode_wait_record(std::span<const std::byte> bytes);

/// Returns the bytes preceded by their checksum and length. A concurrent reader thereby detects a
/// partial write.
[[nodiscard]] std::vector<std::byte> checked(std::span<const std::byte> bytes);

/// Returns the bytes that checked() received, from the beginning of `file`. Returns std::nullopt if
/// the write is incomplete.
[[nodiscard]] std::optional<std::span<const std::byte>> find_checked(
    std::span<const std::byte> file);

}  // namespace unisono
