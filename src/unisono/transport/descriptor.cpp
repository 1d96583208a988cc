#include "unisono/transport/descriptor.h"

#include <algorithm>
#include <utility>

#include "unisono/base/bytes.h"
#include "unisono/base/text.h"

namespace unisono::transport {
namespace {

// Limit on the late ranks that are sent. Any single rank of a deadlock leads the search to all
// others.
constexpr std::size_t kMostLate = 64;

constexpr std::size_t kLateBytes = sizeof(std::int32_t) + sizeof(std::uint64_t);

}  // namespace

std::vector<std::byte> encode(const Stall& stall) {
  ByteWriter payload;
  payload.put(stall.id.group);
  payload.put(static_cast<std::uint8_t>(stall.id.is_message ? 1 : 0));
  payload.put(stall.id.sequence);
  payload.put(std::int32_t{stall.rank});
  payload.put(static_cast<std::uint8_t>(stall.is_for_any ? 1 : 0));
  payload.put_string(utf8_prefix(stall.text, kMaxNoteBytes));
  payload.put_string(utf8_prefix(stall.gone, kMaxNoteBytes));
  // A cut list of the ranks that may send would look complete, so no late rank is sent instead.
  const bool has_too_many = stall.is_for_any && stall.late.size() > kMostLate;
  const std::size_t n_late = has_too_many ? 0 : std::min(stall.late.size(), kMostLate);
  for (const LateRank& late : std::span(stall.late).first(n_late)) {
    payload.put(std::int32_t{late.rank});
    payload.put(late.n_arrived);
  }
  return std::move(payload).bytes();
}

std::optional<Stall> decode_stall(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto group = reader.get<std::uint32_t>();
  const auto is_message = reader.get<std::uint8_t>();
  const auto sequence = reader.get<std::uint64_t>();
  const auto rank = reader.get<std::int32_t>();
  const auto is_for_any = reader.get<std::uint8_t>();
  std::optional<std::string> text = reader.get_string(kMaxNoteBytes);
  std::optional<std::string> gone = reader.get_string(kMaxNoteBytes);
  const std::size_t n_late_bytes = reader.rest().size();
  if (!group || !is_message || !sequence || !rank || !is_for_any || !text || !gone ||
      n_late_bytes % kLateBytes != 0 || n_late_bytes / kLateBytes > kMostLate) {
    return std::nullopt;
  }
  Stall stall{.id = {.group = *group, .is_message = *is_message != 0, .sequence = *sequence},
              .rank = *rank,
              .late = {},
              .is_for_any = *is_for_any != 0,
              .text = std::move(*text),
              .gone = std::move(*gone)};
  while (const auto late = reader.get<std::int32_t>()) {
    stall.late.push_back({.rank = *late, .n_arrived = reader.get<std::uint64_t>().value_or(0)});
  }
  return stall;
}

}  // namespace unisono::transport
