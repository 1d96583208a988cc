#pragma once

#include <sys/types.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/deadline.h"

namespace unisono {

/// The variable that tells a rank where its launcher looks for its waits: the path of a file of
/// kWaitFileBytes, which holds checked() bytes of a WaitRecord, or zeros. Empty: nobody looks.
inline constexpr const char* kWaitFileVariable = "UNISONO_WAIT_FILE";

inline constexpr std::size_t kWaitFileBytes = 64 << 10;

/// A wait for other ranks that is so long that it was reported.
struct LongWait {
  Deadline::Clock::time_point since;  ///< Nothing has come since then.
  Deadline::Clock::time_point seen;   ///< When the rank has last found that it goes on.
  std::string operation;              ///< "all_reduce #3 (f32[8], sum)".
  std::vector<int> late;              ///< Ranks of the job; none: any may end it.
};

/// What a rank tells its launcher of its waits.
struct WaitRecord {
  pid_t pid = 0;
  std::vector<LongWait> waits = {};
};

/// Of many waits, many late ranks and a long text the first part: all fits into the file.
[[nodiscard]] std::vector<std::byte> encode(const WaitRecord& record);

/// Nothing when the bytes are no record.
[[nodiscard]] std::optional<WaitRecord> decode_wait_record(std::span<const std::byte> bytes);

/// The bytes with their checksum and length in front, so that who reads them while they are written
/// notices it.
[[nodiscard]] std::vector<std::byte> checked(std::span<const std::byte> bytes);

/// The bytes that checked() took, at the begin of `file`. Nothing while they are written.
[[nodiscard]] std::optional<std::span<const std::byte>> find_checked(
    std::span<const std::byte> file);

}  // namespace unisono
