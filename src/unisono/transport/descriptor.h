#pragma once

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

/// Descriptor::count where blocks differ in size, and a rank knows only the sizes of its own.
inline constexpr std::int64_t kUneven = -1;

/// Whether ranks' elements are combined.
[[nodiscard]] constexpr bool reduces(OperationKind kind) {
  return kind == OperationKind::kAllReduce || kind == OperationKind::kReduce ||
         kind == OperationKind::kReduceScatter || kind == OperationKind::kAllReduceCoalesced ||
         kind == OperationKind::kReduceScatterCoalesced;
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
  /// What else must agree: of all_gather and reduce_scatter a fingerprint of the blocks' sizes, of
  /// premul_sum the factor's bits, of a user's reduction a fingerprint of its name. 0: nothing.
  std::uint64_t detail = 0;

  friend bool operator==(const Descriptor&, const Descriptor&) = default;
};

// It is copied byte by byte into shared memory and frames.
static_assert(sizeof(Descriptor) == 24 && std::is_trivially_copyable_v<Descriptor>);

/// Where a rank is in its group's operations.
struct Standing {
  std::uint64_t sequence = 0;  ///< Of the operation that it began last; 0: none yet.
  Descriptor descriptor = {};
  bool has_finished = false;
  /// The call after it that the rank refused for its arguments, and why; empty: none.
  std::string refused = {};
};

}  // namespace unisono::transport
