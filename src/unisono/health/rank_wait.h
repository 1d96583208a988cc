#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/health/wait_id.h"

namespace unisono::health {

/// A rank that is waited for.
struct LateRank {
  int rank = 0;  ///< Of the job.
  /// By a receive: how many messages of the group have come from it, ever.
  std::uint64_t n_arrived = 0;

  friend bool operator==(const LateRank&, const LateRank&) = default;
};

/// A wait of a rank that ends only when each of the `late` ranks has done its part.
struct RankWait {
  WaitId id;
  int rank = 0;  ///< Of the job.
  std::vector<LateRank> late;
  /// A receive from any rank: one of the late ranks, which are those that may still send, suffices.
  bool is_for_any = false;
  std::string text = {};  ///< "all_reduce #1 (f32[8], sum) of group 2 (ranks 0, 1)".
  std::string gone = {};  ///< is_for_any: names those that can't send any more; "" if none.
};

/// The payload of a frame with it, as ranks ask each other about waits; of long texts and of many
/// late ranks the first part, of a receive from any of very many ranks none.
[[nodiscard]] std::vector<std::byte> encode_wait(const RankWait& wait);

/// What such a payload says; nothing where no correct sender would write it.
[[nodiscard]] std::optional<RankWait> decode_wait(std::span<const std::byte> payload);

}  // namespace unisono::health
