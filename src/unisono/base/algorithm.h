#pragma once

#include <array>
#include <cstdint>

namespace unisono {

/// How a reduction is carried out. The values travel in descriptors: append only.
enum class Algorithm : std::uint8_t {
  kAuto,     ///< Chosen by cost among those with the canonical bits.
  kOneShot,  ///< Every rank combines everything: fewest steps, for small buffers.
  kTwoShot,  ///< Each rank combines its chunk and hands it to all: least traffic, for large ones.
  // The rest is for all_reduce.
  kTree,             ///< To rank 0 and back along a binomial tree: few messages, for many nodes.
  kHalvingDoubling,  ///< Halves of halves to ranks ever farther away, and back.
  // These combine in another order. They are never chosen, and are there to compare with.
  kRing,             ///< Whole buffers go once round all ranks.
  kChunkedRing,      ///< Chunks go twice round all ranks.
  kParameterServer,  ///< Rank 0 takes in all buffers and sends the result to all.
  // As kTwoShot, but with fewer bits between nodes. Never chosen: the result loses some, too.
  kTwoShotBFloat16,  ///< 16 bits for each element.
  kTwoShotFloat8     ///< 8 bits for each element, and a scale for each block.
};

inline constexpr std::array kAlgorithms{Algorithm::kAuto,
                                        Algorithm::kOneShot,
                                        Algorithm::kTwoShot,
                                        Algorithm::kTree,
                                        Algorithm::kHalvingDoubling,
                                        Algorithm::kRing,
                                        Algorithm::kChunkedRing,
                                        Algorithm::kParameterServer,
                                        Algorithm::kTwoShotBFloat16,
                                        Algorithm::kTwoShotFloat8};

/// "auto", "one_shot", ... as in messages.
[[nodiscard]] const char* to_string(Algorithm algorithm) noexcept;

}  // namespace unisono
