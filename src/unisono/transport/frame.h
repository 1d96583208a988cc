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
  kRankProgress = 5,  ///< Where the sender is in its group's operations; the payload: encode_...().
  kAsk = 6,      ///< Where is this rank in the group? The answer: kRankProgress, kAbort or kLeave.
  kWait = 7,     ///< In what the sender waits; the payload is a health::RankWait, or nothing.
  kAskWait = 8,  ///< What keeps this rank from ending the wait in the payload? Answer: kWait.
  kVerdict = 9,  ///< Why the group will fail; as kAbort. The answer is kHeard.
  kVerdictEnd = 10,  ///< All who are to know know that: the group fails. The answer is kHeard.
  kHeard = 11,       ///< That has been heard.
  kEnded = 12        ///< A rank of the sender's node has ended without leaving the job.
};

/// What stands before each payload on a connection between nodes.
struct Frame {
  FrameKind kind = FrameKind::kData;
  /// kData: which transfer of the operation between this pair, from 0. kAbort, kVerdict and
  /// kVerdictEnd: the ErrorCode.
  /// kPacket: bytes of the label, which follows the fields. kRankProgress: 1 if the operation is
  /// done. kLeave: 1 if what operations need may still be on its way by another connection, and 2
  /// if messages may.
  std::uint32_t step = 0;
  /// kData, kRankProgress: the operation's number in its group. kEnded: the rank of the job. Else
  /// the group's number.
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  std::uint64_t n_bytes = 0;  ///< Of the payload.
  /// Of a question and its answer: the asking rank's number for it, from 1. Else 0.
  std::uint32_t question = 0;
};

inline constexpr std::size_t kFrameBytes = 56;
inline constexpr std::size_t kMaxAbortBytes = 4096;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 46;

using FrameBytes = std::array<std::byte, kFrameBytes>;

[[nodiscard]] FrameBytes encode(const Frame& frame);

/// Nothing that a correct sender would not write is let through.
[[nodiscard]] std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> bytes);

/// A whole frame, with this payload.
[[nodiscard]] std::vector<std::byte> encode(Frame frame, std::span<const std::byte> payload);

/// A whole kAbort frame with the error.
[[nodiscard]] std::vector<std::byte> encode_abort(std::uint32_t group,
                                                  const Error& error,
                                                  std::uint32_t question = 0);

/// Writes one to a socket. Does not block: one that is full, or whose peer is gone, drops it.
void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept;

/// A whole kRankProgress frame.
[[nodiscard]] std::vector<std::byte> encode_rank_progress(const RankProgress& rank_progress,
                                                          std::uint32_t question);

/// What a kRankProgress frame says.
[[nodiscard]] RankProgress decode_rank_progress(const Frame& frame,
                                                std::span<const std::byte> payload);

/// A whole kLeave frame.
[[nodiscard]] std::vector<std::byte> encode_leave(std::uint32_t group,
                                                  const Departure& departure = {},
                                                  std::uint32_t question = 0);

/// What a kLeave frame says.
[[nodiscard]] Departure decode_departure(const Frame& frame);

/// The error of a kAbort, kVerdict or kVerdictEnd frame.
[[nodiscard]] Error decode_abort(const Frame& frame, std::span<const std::byte> payload);

}  // namespace unisono::transport
