#include "unisono/transport/frame.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/error.h"
#include "unisono/base/utf8.h"
#include "unisono/net/io.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {
namespace {

// "UNI1", so that bytes out of step are seen at once.
constexpr std::uint32_t kMagic = 0x31494E55;

// The longest payload of such a frame.
std::uint64_t limit_of(FrameKind kind) {
  switch (kind) {
    case FrameKind::kData:
    case FrameKind::kPacket:
      return kMaxPayloadBytes;
    case FrameKind::kAbort:
    case FrameKind::kWait:
    case FrameKind::kAskWait:
    case FrameKind::kVerdict:
    case FrameKind::kVerdictEnd:
      return kMaxAbortBytes;
    case FrameKind::kRankProgress:
      return 3 * kMaxNoteBytes;
    case FrameKind::kLeave:
    case FrameKind::kAsk:
    case FrameKind::kHeard:
      break;
  }
  return 0;
}

// Whether a frame of this kind may have this question's number.
bool fits(FrameKind kind, std::uint32_t question) {
  switch (kind) {
    case FrameKind::kData:
    case FrameKind::kPacket:
      return question == 0;
    case FrameKind::kAbort:
    case FrameKind::kLeave:
      return true;  // News, or an answer.
    case FrameKind::kRankProgress:
    case FrameKind::kAsk:
    case FrameKind::kWait:
    case FrameKind::kAskWait:
    case FrameKind::kVerdict:
    case FrameKind::kVerdictEnd:
    case FrameKind::kHeard:
      break;
  }
  return question != 0;
}

std::vector<std::byte> with_text(const Frame& frame, std::string_view text) {
  return encode(frame, std::as_bytes(std::span(text)));
}

// Of a kRankProgress frame: the first bit says whether the operation is done, then come the sizes
// of two texts; the third has the rest of the payload.
constexpr std::uint32_t kRefusedUnit = 2;
constexpr std::uint32_t kWaitsUnit = 2048;
static_assert(kRefusedUnit * kMaxNoteBytes < kWaitsUnit);

std::uint32_t n_refused_bytes(const Frame& frame) {
  return frame.step % kWaitsUnit / kRefusedUnit;
}

std::uint32_t n_waits_bytes(const Frame& frame) {
  return frame.step / kWaitsUnit;
}

// Of a kLeave frame.
constexpr std::uint32_t kOperationsOnTheirWay = 1;
constexpr std::uint32_t kMessagesOnTheirWay = 2;

std::string text_of(std::span<const std::byte> payload) {
  return {reinterpret_cast<const char*>(payload.data()), payload.size()};
}

}  // namespace

// u32 magic, u8 kind, 3 zero bytes, u32 step, u64 sequence, descriptor (u8 kind, dtype, reduce,
// algorithm; i32 root; i64 count; u64 detail), u64 n_bytes, u32 question. Little-endian.
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
  const bool is_known = kind >= static_cast<std::uint32_t>(FrameKind::kData) &&
                        kind <= static_cast<std::uint32_t>(FrameKind::kHeard);
  if (magic != kMagic || !is_known) {
    return std::nullopt;
  }
  frame.kind = static_cast<FrameKind>(kind);
  if (!fits(frame.kind, frame.question)) {
    return std::nullopt;
  }
  if (frame.kind == FrameKind::kRankProgress &&
      std::uint64_t{n_refused_bytes(frame)} + n_waits_bytes(frame) > frame.n_bytes) {
    return std::nullopt;
  }
  return frame.n_bytes <= limit_of(frame.kind) ? std::optional(frame) : std::nullopt;
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
    return;  // Out of memory while giving up.
  }
}

std::vector<std::byte> encode_rank_progress(const RankProgress& rank_progress,
                                            std::uint32_t question) {
  const std::string_view refused = utf8_prefix(rank_progress.refused, kMaxNoteBytes);
  const std::string_view waits = utf8_prefix(rank_progress.waits, kMaxNoteBytes);
  const std::string_view elsewhere = utf8_prefix(rank_progress.elsewhere, kMaxNoteBytes);
  const auto n_refused = static_cast<std::uint32_t>(refused.size());
  const auto n_waits = static_cast<std::uint32_t>(waits.size());
  return with_text({.kind = FrameKind::kRankProgress,
                    .step = kWaitsUnit * n_waits + kRefusedUnit * n_refused +
                            (rank_progress.has_finished ? 1U : 0U),
                    .sequence = rank_progress.sequence,
                    .descriptor = rank_progress.descriptor,
                    .question = question},
                   fmt::format("{}{}{}", refused, waits, elsewhere));
}

RankProgress decode_rank_progress(const Frame& frame, std::span<const std::byte> payload) {
  return {.sequence = frame.sequence,
          .descriptor = frame.descriptor,
          .has_finished = frame.step % 2 != 0,
          .refused = text_of(payload.first(n_refused_bytes(frame))),
          .waits = text_of(payload.subspan(n_refused_bytes(frame), n_waits_bytes(frame))),
          .elsewhere = text_of(payload.subspan(n_refused_bytes(frame) + n_waits_bytes(frame)))};
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
