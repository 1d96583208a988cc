#include "unisono/health/rank_wait.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/bytes.h"
#include "unisono/base/utf8.h"
#include "unisono/transport/descriptor.h"

namespace unisono::health {
namespace {

// Any of those that wait in a circle leads to all others.
constexpr std::size_t kMostLate = 64;

constexpr std::size_t kLateBytes = sizeof(std::int32_t) + sizeof(std::uint64_t);

}  // namespace

std::vector<std::byte> encode_wait(const RankWait& wait) {
  ByteWriter payload;
  payload.put(wait.id.group);
  payload.put(static_cast<std::uint8_t>(wait.id.is_message ? 1 : 0));
  payload.put(wait.id.sequence);
  payload.put(std::int32_t{wait.rank});
  payload.put(static_cast<std::uint8_t>(wait.is_for_any ? 1 : 0));
  payload.put_string(utf8_prefix(wait.text, transport::kMaxNoteBytes));
  payload.put_string(utf8_prefix(wait.gone, transport::kMaxNoteBytes));
  // A part of those that may send would look as if it were all.
  const bool has_too_many = wait.is_for_any && wait.late.size() > kMostLate;
  const std::size_t n_late = has_too_many ? 0 : std::min(wait.late.size(), kMostLate);
  for (const LateRank& late : std::span(wait.late).first(n_late)) {
    payload.put(std::int32_t{late.rank});
    payload.put(late.n_arrived);
  }
  return std::move(payload).bytes();
}

std::optional<RankWait> decode_wait(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto group = reader.get<std::uint32_t>();
  const auto is_message = reader.get<std::uint8_t>();
  const auto sequence = reader.get<std::uint64_t>();
  const auto rank = reader.get<std::int32_t>();
  const auto is_for_any = reader.get<std::uint8_t>();
  std::optional<std::string> text = reader.get_string(transport::kMaxNoteBytes);
  std::optional<std::string> gone = reader.get_string(transport::kMaxNoteBytes);
  const std::size_t n_late_bytes = reader.rest().size();
  if (!group || !is_message || !sequence || !rank || !is_for_any || !text || !gone ||
      n_late_bytes % kLateBytes != 0 || n_late_bytes / kLateBytes > kMostLate) {
    return std::nullopt;
  }
  RankWait wait{.id = {.group = *group, .is_message = *is_message != 0, .sequence = *sequence},
                .rank = *rank,
                .late = {},
                .is_for_any = *is_for_any != 0,
                .text = std::move(*text),
                .gone = std::move(*gone)};
  while (const auto late = reader.get<std::int32_t>()) {
    wait.late.push_back({.rank = *late, .n_arrived = reader.get<std::uint64_t>().value_or(0)});
  }
  return wait;
}

}  // namespace unisono::health
