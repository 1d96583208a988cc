#include "unisono/transport/frame.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <exception>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/bytes.h"
#include "unisono/base/dtype.h"
#include "unisono/base/error.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/base/utf8.h"
#include "unisono/net/io.h"
#include "unisono/transport/descriptor.h"

namespace unisono::transport {
namespace {

// "UNI1", so that bytes out of step are seen at once.
constexpr std::uint32_t kMagic = 0x31494E55;

// What a frame may be.
struct Rule {
  std::uint64_t most_bytes;  // Of the payload.
  bool may_stand_alone;
  bool may_be_answer;  // Or a question: it has that one's number.
};

// A number, then each text with its length.
constexpr std::uint64_t kMostNotes =
    sizeof(std::uint64_t) + 3 * (sizeof(std::uint64_t) + kMaxNoteBytes);

// By kind.
constexpr auto kRules = std::to_array<Rule>({{kMaxPayloadBytes, true, false},  // kData
                                             {kMaxAbortBytes, true, true},     // kAbort
                                             {0, true, true},                  // kLeave
                                             {kMaxPayloadBytes, true, false},  // kPacket
                                             {kMostNotes, false, true},        // kRankProgress
                                             {0, false, true},                 // kAsk
                                             {kMaxAbortBytes, false, true},    // kWait
                                             {kMaxAbortBytes, false, true},    // kAskWait
                                             {kMaxAbortBytes, false, true},    // kVerdict
                                             {kMaxAbortBytes, false, true},    // kVerdictEnd
                                             {0, false, true},                 // kHeard
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
    return;  // Out of memory while giving up.
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
