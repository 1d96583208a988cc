#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// The values travel: append only.
enum class FrameKind : std::uint8_t {
  kData = 1,          ///< Bytes of an operation.
  kAbort = 2,         ///< The sender's group failed; the payload says why.
  kLeave = 3,         ///< The sender leaves in good order; nothing follows.
  kPacket = 4,        ///< A packet of point-to-point messages; the payload begins with its fields.
  kRankProgress = 5,  ///< Where the sender is in its group's operations; the payload is its texts.
  kAsk = 6,           ///< The sender waits for this rank, which may say what it does.
  kWait = 7           ///< In what a rank waits; the payload is comm::RankWait.
};

/// What stands before each payload on a connection between nodes.
struct Frame {
  FrameKind kind = FrameKind::kData;
  /// kData: which transfer of the operation between this pair, from 0. kAbort: the ErrorCode.
  /// kPacket: bytes of the label, which follows the fields. kRankProgress: 1 if the operation is
  /// done, 2 times the bytes of what was refused, and 2048 times those of what is waited for; what
  /// the sender does elsewhere follows these two. kLeave: 1 if what operations need may still be on
  /// its way by another connection, and 2 if messages may.
  std::uint32_t step = 0;
  /// kData, kRankProgress: the operation's number in its group. Else the group's number.
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  std::uint64_t n_bytes = 0;  ///< Of the payload.
};

inline constexpr std::size_t kFrameBytes = 56;
inline constexpr std::size_t kMaxAbortBytes = 4096;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 46;

using FrameBytes = std::array<std::byte, kFrameBytes>;

[[nodiscard]] FrameBytes encode(const Frame& frame);

/// Nothing that a correct sender would not write is let through.
[[nodiscard]] std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> bytes);

/// A whole kAbort frame with the error.
[[nodiscard]] std::vector<std::byte> encode_abort(std::uint32_t group, const Error& error);

/// A whole kRankProgress frame.
[[nodiscard]] std::vector<std::byte> encode_rank_progress(const RankProgress& rank_progress);

/// What a kRankProgress frame says.
[[nodiscard]] RankProgress decode_rank_progress(const Frame& frame,
                                                std::span<const std::byte> payload);

/// A whole kAsk frame.
[[nodiscard]] std::vector<std::byte> encode_ask();

/// A whole kLeave frame.
[[nodiscard]] std::vector<std::byte> encode_leave(std::uint32_t group,
                                                  const Departure& departure = {});

/// What a kLeave frame says.
[[nodiscard]] Departure decode_departure(const Frame& frame);

/// The error of a kAbort frame.
[[nodiscard]] Error decode_abort(const Frame& frame, std::span<const std::byte> payload);

}  // namespace unisono::transport
