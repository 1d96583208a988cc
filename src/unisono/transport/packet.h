#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "unisono/base/dtype.h"

namespace unisono::transport {

/// Kinds of packets between two ranks. The values travel: append only.
enum class PacketKind : std::uint8_t {
  kNone,
  kMessage,    ///< A small message with its data.
  kAnnounce,   ///< A message whose data stays with its sender until it is asked for.
  kClear,      ///< From the receiver of an announced message: send its data.
  kData,       ///< A segment of it, in order.
  kTaken,      ///< From its receiver: the data was read where it lay.
  kDelivered,  ///< From its sender: the data was written where it belongs.
  kCredit,     ///< So many bytes of small messages have found their receives.
  kAskCredit   ///< The sender leaves and receives no more: credit is returned at once from now on.
};

/// Where an announced message's data lies, or is wanted. The values travel: append only.
enum class PacketMemory : std::uint8_t {
  kPrivate,  ///< `place` is an address of the process.
  kArena,    ///< `place` is an offset in the rank's arena.
  kAttended  ///< As kPrivate, of an announcement; a thread of the sender does nothing but wait.
};

/// The header of a packet about a message. Travels as it lies in memory.
struct Packet {
  PacketKind kind = PacketKind::kNone;
  DType dtype = DType::kInt8;
  PacketMemory memory = PacketMemory::kPrivate;
  std::uint8_t unused = 0;
  std::int32_t tag = 0;
  /// Which announced message, by its sender's count for this receiver.
  std::uint32_t number = 0;
  std::uint32_t n_bytes = 0;  ///< Of the payload that comes with it.
  std::int64_t count = 0;     ///< Elements of the message. kCredit: the bytes.
  std::int64_t place = 0;
};

/// Messages up to this size can travel with their data at once.
inline constexpr std::int64_t kMaxSmallBytes = 64 << 10;

/// The largest payload of a kData packet.
inline constexpr std::int64_t kMaxSegmentBytes = 1 << 20;

/// What is kept of a label on its way to the other rank's error messages.
inline constexpr std::size_t kMaxLabelBytes = 120;

/// False for what no correct sender would send.
[[nodiscard]] bool is_plausible(const Packet& packet) noexcept;

/// Packets to and from one rank, in order. Never blocks. One thread at a time.
class PacketChannel {
 public:
  PacketChannel() = default;
  virtual ~PacketChannel() = default;
  PacketChannel(const PacketChannel&) = delete;
  PacketChannel& operator=(const PacketChannel&) = delete;
  PacketChannel(PacketChannel&&) = delete;
  PacketChannel& operator=(PacketChannel&&) = delete;

  /// Hands over a packet with its label and its payload of packet.n_bytes. False when it does not
  /// fit now: to be called again with the same arguments, as a part may be on its way.
  [[nodiscard]] virtual bool send(const Packet& packet,
                                  std::string_view label,
                                  std::span<const std::byte> payload) = 0;

  /// The packet that is to be taken next; null when none has come. It is plausible.
  ///
  /// Throws Error: kCorruptData, kPeerLost, and the peer's own error when its group failed.
  [[nodiscard]] virtual const Packet* peek() = 0;

  /// The label of the packet that peek() showed, until it is taken.
  [[nodiscard]] virtual std::string_view label() const = 0;

  /// Takes that packet, its payload into memory of its size. False when not all has come: to be
  /// called again with the same memory. Throws as peek() does.
  [[nodiscard]] virtual bool take(std::span<std::byte> payload) = 0;
};

}  // namespace unisono::transport
