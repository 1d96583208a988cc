#include "unisono/comm/rank_wait.h"

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
#include "unisono/transport/tcp/frame.h"

namespace unisono::comm {
namespace {

// Any of those that wait in a circle leads to all others.
constexpr std::size_t kMostLate = 64;

}  // namespace

std::vector<std::byte> encode_wait(const RankWait& wait) {
  ByteWriter payload;
  payload.put(wait.id.group);
  payload.put(static_cast<std::uint8_t>(wait.id.is_message ? 1 : 0));
  payload.put(wait.id.sequence);
  payload.put(std::int32_t{wait.rank});
  payload.put(wait.n_arrived);
  payload.put_string(utf8_prefix(wait.text, transport::kMaxNoteBytes));
  for (const int rank : std::span(wait.late).first(std::min(wait.late.size(), kMostLate))) {
    payload.put(std::int32_t{rank});
  }
  const tcp::FrameBytes header =
      tcp::encode({.kind = tcp::FrameKind::kWait, .n_bytes = payload.bytes().size()});
  std::vector<std::byte> bytes(header.size() + payload.bytes().size());
  std::copy(header.begin(), header.end(), bytes.begin());
  std::copy(payload.bytes().begin(),
            payload.bytes().end(),
            bytes.begin() + static_cast<std::ptrdiff_t>(header.size()));
  return bytes;
}

std::optional<RankWait> decode_wait(std::span<const std::byte> payload) {
  ByteReader reader(payload);
  const auto group = reader.get<std::uint32_t>();
  const auto is_message = reader.get<std::uint8_t>();
  const auto sequence = reader.get<std::uint64_t>();
  const auto rank = reader.get<std::int32_t>();
  const auto n_arrived = reader.get<std::uint64_t>();
  std::optional<std::string> text = reader.get_string(transport::kMaxNoteBytes);
  const std::size_t n_late_bytes = reader.rest().size();
  if (!group || !is_message || !sequence || !rank || !n_arrived || !text ||
      n_late_bytes % sizeof(std::int32_t) != 0 || n_late_bytes / sizeof(std::int32_t) > kMostLate) {
    return std::nullopt;
  }
  RankWait wait{.id = {.group = *group, .is_message = *is_message != 0, .sequence = *sequence},
                .rank = *rank,
                .late = {},
                .n_arrived = *n_arrived,
                .text = std::move(*text)};
  while (const auto late = reader.get<std::int32_t>()) {
    wait.late.push_back(*late);
  }
  return wait;
}

}  // namespace unisono::comm
