#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace unisono::transport {

/// Identifies a wait of a rank: a collective operation by its number in the group, a message by
/// this rank's count of messages in the group.
struct WaitId {
  std::uint32_t group = 0;
  bool is_message = false;
  std::uint64_t sequence = 0;

  friend auto operator<=>(const WaitId&, const WaitId&) = default;
};

/// A rank that has not done its part of an operation or message.
struct LateRank {
  int rank = 0;  ///< Rank in the job.
  /// For a receive: number of messages of the group that have arrived from the rank so far.
  std::uint64_t n_arrived = 0;

  friend bool operator==(const LateRank&, const LateRank&) = default;
};

/// A wait of a rank that ends when every rank in `late` has done its part.
struct Stall {
  WaitId id;
  int rank = 0;  ///< Rank in the job.
  std::vector<LateRank> late;
  /// True for a receive from any rank: the ranks in `late` may still send, and a single message is
  /// enough.
  bool is_for_any = false;
  std::string text = {};  ///< "all_reduce #1 (f32[8], sum) of group 2 (ranks 0, 1)".
  std::string gone = {};  ///< With is_for_any: names of the ranks that can no longer send, or "".
};

/// Returns the payload of a frame with the stall. Long texts and long lists of late ranks are cut.
/// A receive from any of too many ranks is sent without late ranks, because a part of the list
/// would look complete.
[[nodiscard]] std::vector<std::byte> encode(const Stall& stall);

/// Parses such a payload. Returns std::nullopt for bytes that no correct sender writes.
[[nodiscard]] std::optional<Stall> decode_stall(std::span<const std::byte> payload);

}  // namespace unisono::transport
