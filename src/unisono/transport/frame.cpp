#include "unisono/transport/frame.h"

#include <algorithm>
#include <cstring>
#include <exception>
#include <limits>

#include "unisono/base/bytes.h"
#include "unisono/base/reduction.h"
#include "unisono/base/text.h"
#include "unisono/net/io.h"

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

namespace {

// "UNI1" in ASCII. A reader that has lost the frame boundaries detects this at once.
constexpr std::uint32_t kMagic = 0x31494E55;

// Limits of a frame kind.
struct Rule {
  std::uint64_t most_bytes;  // Limit of the payload.
  bool may_stand_alone;
  bool may_be_answer;  // True if the frame may be a question or a reply, with a question number.
};

// Largest payload of kRankProgress: a number and three length-prefixed texts.
constexpr std::uint64_t kMostNotes =
    sizeof(std::uint64_t) + 3 * (sizeof(std::uint64_t) + kMaxNoteBytes);

// In the order of the kinds.
constexpr auto kRules = std::to_array<Rule>({{kMaxPayloadBytes, true, false},  // kData
                                             {kMaxAbortBytes, true, true},     // kAbort
                                             {0, true, true},                  // kLeave
                                             {kMaxPayloadBytes, true, false},  // kPacket
                                             {kMostNotes, false, true},        // kRankProgress
                                             {0, false, true},                 // kAsk
                                             {kMaxAbortBytes, false, true},    // kWait
                                             {kMaxAbortBytes, false, true},    // kAskWait
                                             {kMaxAbortBytes, false, true},    // kDeadlock
                                             {kMaxAbortBytes, false, true},    // kDeadlockCommit
                                             {0, false, true},                 // kAck
                                             {0, true, false}});               // kEnded
static_assert(kRules.size() == static_cast<std::size_t>(FrameKind::kEnded));

bool is_plausible(const Descriptor& descriptor) {
  return descriptor.kind <= kLastOperationKind &&
         static_cast<int>(descriptor.dtype) < kDTypeCount &&
         static_cast<int>(descriptor.reduce) < kReduceKindCount &&
         static_cast<std::size_t>(descriptor.algorithm) < kAlgorithms.size();
}

std::vector<std::byte> with_text(const Frame& frame, std::string_view text) {
  return encode(frame, std::as_bytes(std::span(text)));
}

// Flags in Frame::step of a kLeave frame.
constexpr std::uint32_t kOperationsOnTheirWay = 1;
constexpr std::uint32_t kMessagesOnTheirWay = 2;

std::string text_of(std::span<const std::byte> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace

// Layout: u32 magic, u8 kind, 3 zero bytes, u32 step, u64 sequence, descriptor (u8 kind, dtype,
// reduce, algorithm; i32 root; i64 count; u64 detail), u64 n_bytes, u32 question. Little-endian.
FrameBytes encode(const Frame& frame) {
  ByteWriter writer;
  writer.put(kMagic);
  writer.put(static_cast<std::uint32_t>(frame.kind));
  writer.put(frame.step);
  writer.put(frame.sequence);
  writer.put_raw(std::as_bytes(std::span(&frame.descriptor, 1)));
  writer.put(frame.n_bytes);
  writer.put(frame.question);
  UNISONO_CHECK(writer.bytes().size() == kFrameBytes, "a frame has the wrong size");
  FrameBytes bytes{};
  std::copy(writer.bytes().begin(), writer.bytes().end(), bytes.begin());
  return bytes;
}

std::optional<Frame> decode(std::span<const std::byte, kFrameBytes> bytes) {
  ByteReader reader(bytes);
  const std::uint32_t magic = reader.get<std::uint32_t>().value_or(0);
  const std::uint32_t kind = reader.get<std::uint32_t>().value_or(0);
  Frame frame;
  frame.step = reader.get<std::uint32_t>().value_or(0);
  frame.sequence = reader.get<std::uint64_t>().value_or(0);
  std::memcpy(&frame.descriptor, reader.rest().data(), sizeof(frame.descriptor));
  ByteReader tail(reader.rest().subspan(sizeof(frame.descriptor)));
  frame.n_bytes = tail.get<std::uint64_t>().value_or(0);
  frame.question = tail.get<std::uint32_t>().value_or(0);
  if (magic != kMagic || kind == 0 || kind > kRules.size() || !is_plausible(frame.descriptor)) {
    return std::nullopt;
  }
  frame.kind = static_cast<FrameKind>(kind);
  const Rule& rule = kRules[kind - 1];
  const bool is_allowed = frame.question == 0 ? rule.may_stand_alone : rule.may_be_answer;
  return is_allowed && frame.n_bytes <= rule.most_bytes ? std::optional(frame) : std::nullopt;
}

std::vector<std::byte> encode(Frame frame, std::span<const std::byte> payload) {
  frame.n_bytes = payload.size();
  const FrameBytes header = encode(frame);
  std::vector<std::byte> bytes(header.begin(), header.end());
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  return bytes;
}

std::vector<std::byte> encode_abort(std::uint32_t group,
                                    const Error& error,
                                    std::uint32_t question) {
  return with_text({.kind = FrameKind::kAbort,
                    .step = static_cast<std::uint32_t>(error.code()),
                    .sequence = group,
                    .question = question},
                   utf8_prefix(error.what(), kMaxAbortBytes));
}

void send_abort(int fd, std::uint32_t group, const Error& reason) noexcept {
  try {
    (void)net::write_some(fd, encode_abort(group, reason));
  } catch (const std::exception&) {
    return;  // Out of memory: the frame is not sent.
  }
}

std::vector<std::byte> encode_rank_progress(const RankProgress& rank_progress,
                                            std::uint32_t question) {
  ByteWriter payload;
  payload.put(rank_progress.n_finished_on_node);
  for (const std::string* const text :
       {&rank_progress.refused, &rank_progress.waits, &rank_progress.elsewhere}) {
    payload.put_string(utf8_prefix(*text, kMaxNoteBytes));
  }
  return encode({.kind = FrameKind::kRankProgress,
                 .step = rank_progress.has_finished ? 1U : 0U,
                 .sequence = rank_progress.sequence,
                 .descriptor = rank_progress.descriptor,
                 .question = question},
                payload.bytes());
}

RankProgress decode_rank_progress(const Frame& frame, std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const std::uint64_t n_finished_on_node = reader.get<std::uint64_t>().value_or(0);
  const auto next_text = [&] { return reader.get_string(kMaxNoteBytes).value_or(""); };
  return {.sequence = frame.sequence,
          .descriptor = frame.descriptor,
          .has_finished = frame.step != 0,
          .n_finished_on_node = n_finished_on_node,
          .refused = next_text(),
          .waits = next_text(),
          .elsewhere = next_text()};
}

std::vector<std::byte> encode_leave(std::uint32_t group,
                                    const Departure& departure,
                                    std::uint32_t question) {
  const std::uint32_t step = (departure.from_operations ? 0 : kOperationsOnTheirWay) |
                             (departure.from_messages ? 0 : kMessagesOnTheirWay);
  return encode({.kind = FrameKind::kLeave, .step = step, .sequence = group, .question = question},
                {});
}

Departure decode_departure(const Frame& frame) {
  return {.from_operations = (frame.step & kOperationsOnTheirWay) == 0,
          .from_messages = (frame.step & kMessagesOnTheirWay) == 0};
}

Error decode_abort(const Frame& frame, std::span<const std::byte> payload) {
  const bool is_known = frame.step <= static_cast<std::uint32_t>(ErrorCode::kInternal);
  return {is_known ? static_cast<ErrorCode>(frame.step) : ErrorCode::kPeerLost, text_of(payload)};
}

}  // namespace unisono::transport
