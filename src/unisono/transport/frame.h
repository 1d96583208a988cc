#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/error.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {

/// Kinds of packets between two ranks. The values are part of the wire format: append only.
enum class PacketKind : std::uint8_t {
  kNone,
  kMessage,   ///< A small message with its data.
  kAnnounce,  ///< Announces a message. The sender keeps the data until the receiver fetches it.
  kClear,     ///< From the receiver of an announced message: requests the data.
  kData,      ///< A segment of an announced message, in order.
  kTaken,     ///< From the receiver of an announced message: the data was read in place.
  /// From the sender of an announced message: the data was written to the destination.
  kDelivered,
  kCredit,  ///< Returns credit: the bytes of small messages that were matched with receives.
  /// The sender leaves and receives no more: the peer returns credit at once from now on.
  kAskCredit
};

/// Location of an announced message's data, or of the destination. The values are part of the wire
/// format: append only.
enum class PacketMemory : std::uint8_t {
  kPrivate,  ///< `place` is an address in the process's private memory.
  kArena,    ///< `place` is an offset in the rank's arena.
  kAttended  ///< Like kPrivate, in an announcement: a thread of the sender blocks on the message.
};

/// Header of a packet. Sent in memory layout.
struct Packet {
  PacketKind kind = PacketKind::kNone;
  DType dtype = DType::kInt8;
  PacketMemory memory = PacketMemory::kPrivate;
  std::uint8_t unused = 0;
  std::int32_t tag = 0;
  /// Number of the announced message, counted by the sender for each receiver.
  std::uint32_t number = 0;
  std::uint32_t n_bytes = 0;  ///< Bytes of the payload that follows the packet.
  std::int64_t count = 0;     ///< Elements of the message. kCredit: bytes.
  std::int64_t place = 0;
};

/// Messages up to this size can travel with the data in the first packet.
inline constexpr std::int64_t kMaxSmallBytes = 64 << 10;

/// Largest payload of a kData packet.
inline constexpr std::int64_t kMaxSegmentBytes = 1 << 20;

/// Limit for labels sent with packets, which the peer shows in error messages.
inline constexpr std::size_t kMaxLabelBytes = 120;

/// Returns false for a packet that no correct sender sends.
[[nodiscard]] bool is_plausible(const Packet& packet) noexcept;

/// Ordered packets to and from another rank. Implemented over shared memory (RingChannel) and over
/// frames (PacketStream).
///
/// Not thread-safe. No call blocks. Receiving calls throw the errors listed at peek().
class PacketChannel {
 public:
  PacketChannel() = default;
  virtual ~PacketChannel() = default;
  PacketChannel(const PacketChannel&) = delete;
  PacketChannel& operator=(const PacketChannel&) = delete;
  PacketChannel(PacketChannel&&) = delete;
  PacketChannel& operator=(PacketChannel&&) = delete;

  /// Sends a packet with a label and a payload of packet.n_bytes bytes. Returns false if there is
  /// no room now: call again with the same arguments, as a part may already be in flight.
  [[nodiscard]] virtual bool send(const Packet& packet,
                                  std::string_view label,
                                  std::span<const std::byte> payload) = 0;

  /// Returns the next packet but does not take it; null if no packet has arrived. The packet
  /// is_plausible().
  ///
  /// Throws Error(kCorruptData), Error(kPeerLost), and the peer's own error if the peer's group
  /// failed.
  [[nodiscard]] virtual const Packet* peek() = 0;

  /// Returns the label of the packet that peek() returned. Valid until the packet is taken.
  [[nodiscard]] virtual std::string_view label() const = 0;

  /// Takes that packet and stores the payload in memory of exactly that size. Returns false while
  /// data is missing: call again with the same memory. Throws the errors of peek().
  [[nodiscard]] virtual bool take(std::span<std::byte> payload) = 0;
};

/// Kinds of frames. The values are part of the wire format: append only.
enum class FrameKind : std::uint8_t {
  kData = 1,   ///< Data of an operation.
  kAbort = 2,  ///< The sender's group failed; the payload is the error message.
  kLeave = 3,  ///< The sender leaves cleanly and sends no more frames.
  /// A packet of point-to-point messages; the payload begins with the packet's fields.
  kPacket = 4,
  /// The sender's position in its group's operations; payload: encode_rank_progress().
  kRankProgress = 5,
  /// Asks for the receiver's position in the group. Reply: kRankProgress, kAbort or kLeave.
  kAsk = 6,
  kWait = 7,  ///< A wait of the sender; the payload is an encoded Stall, or empty.
  /// Asks for the wait that keeps the receiver from ending the wait in the payload. Reply: kWait.
  kAskWait = 8,
  kDeadlock = 9,  ///< The error with which the group will fail; format of kAbort. Reply: kAck.
  kDeadlockCommit = 10,  ///< Every affected rank has the error now: the group fails. Reply: kAck.
  kAck = 11,             ///< Acknowledges kDeadlock or kDeadlockCommit.
  kEnded = 12            ///< A rank of the sender's node has exited without leaving the job.
};

/// Header of each payload on a connection between nodes.
struct Frame {
  FrameKind kind = FrameKind::kData;
  /// Meaning by kind. kData: index of the transfer in the operation, between this pair of ranks,
  /// from 0. kAbort, kDeadlock, kDeadlockCommit: the ErrorCode. kPacket: bytes of the label, which
  /// follows the packet's fields. kRankProgress: 1 if the operation is finished. kLeave: flag 1 if
  /// data of operations may still be in flight on another connection, flag 2 if messages may.
  std::uint32_t step = 0;
  /// kData, kRankProgress: number of the operation in its group. kEnded: rank in the job. Other
  /// kinds: number of the group.
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  std::uint64_t n_bytes = 0;  ///< Bytes of the payload.
  /// In a question and the reply: the asking rank's question number, from 1. Otherwise 0.
  std::uint32_t question = 0;
};

inline constexpr std::size_t kFrameBytes = 56;
inline constexpr std::size_t kMaxAbortBytes = 4096;
inline constexpr std::uint64_t kMaxPayloadBytes = std::uint64_t{1} << 46;

using FrameBytes = std::array<std::byte, kFrameBytes>;

/// Returns the header in wire format.
[[nodiscard]] FrameBytes encode(const Frame& frame);

/// Parses a header. Returns std::nullopt for bytes that no correct sender writes.
[[nodiscard]] std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> bytes);

/// Returns a complete frame: header, with n_bytes set, and payload.
[[nodiscard]] std::vector<std::byte> encode(Frame frame, std::span<const std::byte> payload);

/// Returns a complete kAbort frame with the error. The message is cut to kMaxAbortBytes.
[[nodiscard]] std::vector<std::byte> encode_abort(std::uint32_t group,
                                                  const Error& error,
                                                  std::uint32_t question = 0);

/// Writes a kAbort frame to a socket. Does not block: the frame is lost if the send buffer is full
/// or the peer is gone.
void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept;

/// Returns a complete kRankProgress frame. Each text is cut to kMaxNoteBytes.
[[nodiscard]] std::vector<std::byte> encode_rank_progress(const RankProgress& rank_progress,
                                                          std::uint32_t question);

/// Returns the contents of a kRankProgress frame.
[[nodiscard]] RankProgress decode_rank_progress(const Frame& frame,
                                                std::span<const std::byte> payload);

/// Returns a complete kLeave frame.
[[nodiscard]] std::vector<std::byte> encode_leave(std::uint32_t group,
                                                  const Departure& departure = {},
                                                  std::uint32_t question = 0);

/// Returns the contents of a kLeave frame.
[[nodiscard]] Departure decode_departure(const Frame& frame);

/// Returns the error of a kAbort, kDeadlock or kDeadlockCommit frame. An unknown error code becomes
/// kPeerLost.
[[nodiscard]] Error decode_abort(const Frame& frame, std::span<const std::byte> payload);

}  // namespace unisono::transport
