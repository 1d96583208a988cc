#include "unisono/transport/packet.h"

#include <cstdint>
#include <limits>

#include "unisono/base/dtype.h"

namespace unisono::transport {

bool is_plausible(const Packet& packet) noexcept {
  const PacketMemory last =
      packet.kind == PacketKind::kAnnounce ? PacketMemory::kAttended : PacketMemory::kArena;
  if (static_cast<int>(packet.dtype) >= kDTypeCount || packet.memory > last || packet.count < 0) {
    return false;
  }
  const auto element_bytes = static_cast<std::int64_t>(size_of(packet.dtype));
  switch (packet.kind) {
    case PacketKind::kMessage:
      return packet.count <= kMaxSmallBytes && packet.n_bytes <= kMaxSmallBytes &&
             packet.count * element_bytes == packet.n_bytes;
    case PacketKind::kAnnounce:
      return packet.n_bytes == 0 &&
             packet.count <= std::numeric_limits<std::int64_t>::max() / element_bytes;
    case PacketKind::kData:
      return packet.n_bytes > 0 && packet.n_bytes <= kMaxSegmentBytes;
    case PacketKind::kClear:
    case PacketKind::kTaken:
    case PacketKind::kDelivered:
    case PacketKind::kCredit:
    case PacketKind::kAskCredit:
      return packet.n_bytes == 0;
    case PacketKind::kNone:
      break;
  }
  return false;
}

}  // namespace unisono::transport
