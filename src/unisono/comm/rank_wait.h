#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace unisono::comm {

/// Which of a rank's waits: in a collective operation, by its number in the group, or for a
/// message, by this rank's count of the group's messages.
struct WaitId {
  std::uint32_t group = 0;
  bool is_message = false;
  std::uint64_t sequence = 0;

  friend auto operator<=>(const WaitId&, const WaitId&) = default;
};

/// A wait of a rank that ends only when each of the `late` ranks has done its part.
struct RankWait {
  WaitId id;
  int rank = 0;           ///< Of the job, as are the late ones.
  std::vector<int> late;  ///< A receive has one; from any rank none.
  /// Of a receive: how many messages of this group have come from the late rank, ever.
  std::uint64_t n_arrived = 0;
  std::string text = {};  ///< "all_reduce #1 (f32[8], sum) of group 2 (ranks 0, 1)".
};

/// What of a wait has to be in circles, for the wait to be in vain.
struct SearchedWait {
  /// The wait; a receive from any rank once for each rank that may still send, as if from that.
  std::vector<RankWait> parts;
  std::string gone = {};  ///< Names the ranks that can't send any more; "" if there are none.
};

/// A frame of kind kWait with it, as ranks ask each other about waits; of a long text and of many
/// late ranks the first part.
[[nodiscard]] std::vector<std::byte> encode_wait(const RankWait& wait);

/// What such a frame's payload says; nothing where no correct sender would write it.
[[nodiscard]] std::optional<RankWait> decode_wait(std::span<const std::byte> payload);

}  // namespace unisono::comm
