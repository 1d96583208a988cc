#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono::transport {

/// Kinds of operations. The values are part of the wire format: append only.
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
  // Coalesced operations: a single call for several buffers.
  kAllReduceCoalesced,
  kAllGatherCoalesced,
  kReduceScatterCoalesced
};

/// Properties of a kind of operation. Checks, messages and capabilities follow from these.
struct OperationTraits {
  const char* name;           ///< As in messages and in the public interface, e.g. "all_reduce".
  bool has_elements = true;   ///< Moves elements between ranks.
  bool reduces = false;       ///< Combines the elements of several ranks.
  bool has_root = false;      ///< Has a root rank.
  bool has_blocks = false;    ///< A buffer consists of blocks, one for each rank.
  bool is_coalesced = false;  ///< A single call for several buffers.
  bool gathers = false;       ///< The blocks on whose sizes ranks agree are outputs.
};

/// One row for each OperationKind, in the same order. A new operation begins with its row.
inline constexpr auto kOperations = std::to_array<OperationTraits>(
    {{.name = "no operation", .has_elements = false},
     {.name = "barrier", .has_elements = false},
     {.name = "broadcast", .has_root = true},
     {.name = "all_reduce", .reduces = true},
     {.name = "reduce", .reduces = true, .has_root = true},
     {.name = "reduce_scatter", .reduces = true, .has_blocks = true},
     {.name = "all_gather", .has_blocks = true, .gathers = true},
     {.name = "gather", .has_root = true, .has_blocks = true, .gathers = true},
     {.name = "scatter", .has_root = true, .has_blocks = true},
     {.name = "all_to_all"},
     {.name = "monitored_barrier", .has_elements = false},
     {.name = "all_reduce_coalesced", .reduces = true, .is_coalesced = true},
     {.name = "all_gather_coalesced", .is_coalesced = true, .gathers = true},
     {.name = "reduce_scatter_coalesced", .reduces = true, .is_coalesced = true}});

/// The value of OperationKind with the highest number.
inline constexpr auto kLastOperationKind = static_cast<OperationKind>(kOperations.size() - 1);
static_assert(kLastOperationKind == OperationKind::kReduceScatterCoalesced);

/// Returns the row of a kind; for a value that is no OperationKind, as a peer may send, that of
/// kNone.
[[nodiscard]] constexpr const OperationTraits& traits_of(OperationKind kind) {
  return kOperations[kind <= kLastOperationKind ? static_cast<std::size_t>(kind) : 0];
}

/// Value of Descriptor::count if blocks differ in size and a rank has only the sizes of its own
/// blocks.
inline constexpr std::int64_t kUneven = -1;

/// Returns true for an operation on several buffers at once.
[[nodiscard]] constexpr bool is_coalesced(OperationKind kind) {
  return traits_of(kind).is_coalesced;
}

/// Returns true if the operation combines the elements of several ranks.
[[nodiscard]] constexpr bool reduces(OperationKind kind) {
  return traits_of(kind).reduces;
}

/// Returns true if the operation moves elements between ranks.
[[nodiscard]] constexpr bool has_elements(OperationKind kind) {
  return traits_of(kind).has_elements;
}

/// Returns true if the operation has a root rank.
[[nodiscard]] constexpr bool has_root(OperationKind kind) {
  return traits_of(kind).has_root;
}

/// Returns true if no rank can finish before every rank has called the operation.
[[nodiscard]] constexpr bool needs_all(OperationKind kind) {
  return kind != OperationKind::kNone && !has_root(kind);
}

/// Returns true if a buffer consists of blocks, one for each rank, or the operation is coalesced.
/// Ranks must then agree on the block sizes too.
[[nodiscard]] constexpr bool has_blocks(OperationKind kind) {
  return traits_of(kind).has_blocks || is_coalesced(kind);
}

/// Returns true if reductions of that kind have a parameter: a factor or the name of a function.
[[nodiscard]] constexpr bool has_parameter(ReduceKind kind) {
  return kind == ReduceKind::kPremulSum || kind == ReduceKind::kUser;
}

/// Returns the name used in messages, e.g. "all_reduce".
[[nodiscard]] const char* to_string(OperationKind kind) noexcept;

/// Identifies an operation to peers. Travels with the operation's data, at no extra message. Ranks
/// with different descriptors have called different operations.
struct Descriptor {
  OperationKind kind = OperationKind::kNone;
  DType dtype = DType::kInt8;
  ReduceKind reduce = ReduceKind::kSum;
  Algorithm algorithm = Algorithm::kAuto;
  std::int32_t root = 0;
  /// Elements of the whole vector (all_reduce, broadcast, reduce), of a single rank's block
  /// (gather, scatter, all_to_all) or of all blocks (all_gather, reduce_scatter); or kUneven.
  std::int64_t count = 0;
  /// Further value on which ranks must agree, or 0. If has_blocks(): a packed BlockDetail.
  /// Otherwise the bits of the factor (kPremulSum) or a fingerprint of the function's name (kUser).
  std::uint64_t detail = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

/// Descriptor::detail of an operation that has blocks.
struct BlockDetail {
  /// Hash of unequal block sizes, or of a coalesced operation's sizes, combined with a hash of the
  /// reduction's parameter.
  std::uint32_t fingerprint = 0;
  /// For messages only. Coalesced operations: the number of buffers. Others: 0 for equal blocks,
  /// otherwise 1 + the size of the first block, saturated at the largest value.
  std::uint32_t hint = 0;

  /// Returns the value for Descriptor::detail.
  [[nodiscard]] constexpr std::uint64_t pack() const {
    return std::uint64_t{fingerprint} << 32U | hint;
  }

  /// The inverse of pack().
  [[nodiscard]] static constexpr BlockDetail unpack(std::uint64_t detail) {
    return {.fingerprint = static_cast<std::uint32_t>(detail >> 32U),
            .hint = static_cast<std::uint32_t>(detail)};
  }
};

// Descriptors are copied byte by byte into shared memory and frames.
static_assert(sizeof(Descriptor) == 24 && std::is_trivially_copyable_v<Descriptor>);

/// The kinds of traffic of a group that a rank has left for certain. A member is false if the two
/// ranks had a connection of that kind: data that the rank sent earlier may still be in flight, so
/// the rank counts as present.
struct Departure {
  bool from_operations = true;
  bool from_messages = true;
};

/// Ranks of the job with which a rank had connections in a group.
struct ConnectedPeers {
  std::set<int> by_operations = {};
  std::set<int> by_messages = {};
};

/// A called operation and the number of the call in the group.
struct CallRecord {
  std::uint64_t sequence;
  Descriptor descriptor;
};

/// Limit in bytes for each text of a RankProgress that is sent or stored; longer texts are cut.
inline constexpr std::size_t kMaxNoteBytes = 512;

/// Position of a rank in the operations of a group.
struct RankProgress {
  /// Number of the last operation that the rank began; 0 before the first.
  std::uint64_t sequence = 0;
  Descriptor descriptor = {};
  bool has_finished = false;
  /// Number of operations that every rank of the group on this rank's node has finished.
  std::uint64_t n_finished_on_node = 0;
  /// The first call after that operation that the rank refused for wrong arguments, with the
  /// reason; or "".
  std::string refused = {};
  /// Messages that the rank has awaited for a long time: "waits in recv (f32[8], from rank 1, tag
  /// 3)".
  std::string waits = {};
  /// Activity of the rank in other groups: "is in barrier #7 of group 2 (ranks 0, 1)".
  std::string elsewhere = {};
};

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
