#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <type_traits>

#include "unisono/base/algorithm.h"
#include "unisono/base/dtype.h"
#include "unisono/base/reduce_kind.h"

namespace unisono::transport {

/// Kinds of operations. The values travel: append only.
enum class OperationKind : std::uint8_t {
  kNone,
  kBarrier,
  kBroadcast,
  kAllReduce,
  kReduce,
  kReduceScatter,
  kAllGather,
  kGather,
  kScatter,
  kAllToAll,
  kMonitoredBarrier,
  // Many buffers at once.
  kAllReduceCoalesced,
  kAllGatherCoalesced,
  kReduceScatterCoalesced
};

inline constexpr OperationKind kLastOperationKind = OperationKind::kReduceScatterCoalesced;

/// Descriptor::count where blocks differ in size, and a rank knows only the sizes of its own.
inline constexpr std::int64_t kUneven = -1;

/// Whether it is of many buffers at once.
[[nodiscard]] constexpr bool is_coalesced(OperationKind kind) {
  return kind == OperationKind::kAllReduceCoalesced || kind == OperationKind::kAllGatherCoalesced ||
         kind == OperationKind::kReduceScatterCoalesced;
}

/// Whether ranks' elements are combined.
[[nodiscard]] constexpr bool reduces(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduce ||
         kind == OperationKind::kReduceScatter || kind == OperationKind::kAllReduceCoalesced ||
         kind == OperationKind::kReduceScatterCoalesced;
}

/// Whether elements go from rank to rank.
[[nodiscard]] constexpr bool has_elements(OperationKind kind) {
  return kind != OperationKind::kNone && kind != OperationKind::kBarrier &&
         kind != OperationKind::kMonitoredBarrier;
}

/// Whether ranks play different parts: one is the root.
[[nodiscard]] constexpr bool has_root(OperationKind kind) {
  return kind == OperationKind::kBroadcast || kind == OperationKind::kReduce ||
         kind == OperationKind::kGather || kind == OperationKind::kScatter;
}

/// Whether no rank's part ends before every rank has called it.
[[nodiscard]] constexpr bool needs_all(OperationKind kind) {
  return kind != OperationKind::kNone && !has_root(kind);
}

/// Whether a buffer lies in blocks for each rank, or the operation is coalesced: then the blocks'
/// sizes must agree, too.
[[nodiscard]] constexpr bool has_blocks(OperationKind kind) {
  return kind == OperationKind::kReduceScatter || kind == OperationKind::kAllGather ||
         kind == OperationKind::kGather || kind == OperationKind::kScatter || is_coalesced(kind);
}

/// Whether reductions of that kind differ among themselves: by a factor, or a function's name.
[[nodiscard]] constexpr bool has_parameter(ReduceKind kind) {
  return kind == ReduceKind::kPremulSum || kind == ReduceKind::kUser;
}

/// "all_reduce", ... as in messages.
[[nodiscard]] const char* to_string(OperationKind kind) noexcept;

/// What an operation says of itself to its peers, with the data it sends anyway. Ranks whose
/// descriptors differ called different operations.
struct Descriptor {
  OperationKind kind = OperationKind::kNone;
  DType dtype = DType::kInt8;
  ReduceKind reduce = ReduceKind::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  std::int32_t root = 0;
  /// Elements of the vector (all_reduce, broadcast, reduce), of one rank's block (gather, scatter,
  /// all_to_all) or of all blocks (all_gather, reduce_scatter); or kUneven.
  std::int64_t count = 0;
  /// What else must agree; 0: nothing. Where has_blocks(): BlockDetail. Else of premul_sum the
  /// factor's bits, of a user's reduction a fingerprint of its name.
  std::uint64_t detail = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// Descriptor::detail of an operation that has blocks.
struct BlockDetail {
  /// Of the sizes where they differ, or of a coalesced operation's, and of what else the reduction
  /// is besides its kind.
  std::uint32_t fingerprint = 0;
  /// For messages: how many buffers a coalesced operation has; else 0 where blocks are equal, and
  /// 1 + the size of the first where they differ, or the largest number if that is larger.
  std::uint32_t hint = 0;

  [[nodiscard]] constexpr std::uint64_t pack() const {
    return std::uint64_t{fingerprint} << 32U | hint;
  }

  [[nodiscard]] static constexpr BlockDetail unpack(std::uint64_t detail) {
    return {.fingerprint = static_cast<std::uint32_t>(detail >> 32U),
            .hint = static_cast<std::uint32_t>(detail)};
  }
};

// It is copied byte by byte into shared memory and frames.
static_assert(sizeof(Descriptor) == 24 && std::is_trivially_copyable_v<Descriptor>);

/// As what a rank has left a group. What it has sent before may still be on its way where there was
/// a connection, and then it counts as there.
struct Departure {
  bool from_operations = true;
  bool from_messages = true;
};

/// Of each text of a RankProgress, so much is passed on.
inline constexpr std::size_t kMaxNoteBytes = 512;

/// Where a rank is in its group's operations.
struct RankProgress {
  std::uint64_t sequence = 0;  ///< Of the operation that it began last; 0: none yet.
  Descriptor descriptor = {};
  bool has_finished = false;
  /// How many operations all of the group's ranks of its node have finished.
  std::uint64_t n_finished_on_node = 0;
  /// The call after it that the rank refused for its arguments, and why; empty: none.
  std::string refused = {};
  /// The messages that it has waited for since long: "waits in recv (f32[8], from rank 1, tag 3)".
  std::string waits = {};
  /// What the rank does in its other groups: "is in barrier #7 of group 2 (ranks 0, 1)".
  std::string elsewhere = {};
};

}  // namespace unisono::transport
