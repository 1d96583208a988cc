#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
#include "unisono/base/reduce_kind.h"
#include "unisono/base/user_reduction.h"

namespace unisono {

/// What a reduction computes from the ranks' elements; docs/design/reductions.md says what that is
/// for each dtype.
struct ReduceOp {
  // Not an aggregate: within options made in a call, GCC 12 takes one for uninitialized.
  ReduceOp() {}

  explicit ReduceOp(ReduceKind reduce_kind) : kind(reduce_kind) {}

  ReduceKind kind = ReduceKind::kSum;
  double factor = 1;                          ///< Of kPremulSum.
  std::shared_ptr<const UserReduction> user;  ///< Of kUser.
};

inline const ReduceOp kSum{ReduceKind::kSum};
inline const ReduceOp kAvg{ReduceKind::kAvg};
inline const ReduceOp kProduct{ReduceKind::kProduct};
inline const ReduceOp kMin{ReduceKind::kMin};
inline const ReduceOp kMax{ReduceKind::kMax};
inline const ReduceOp kBand{ReduceKind::kBand};
inline const ReduceOp kBor{ReduceKind::kBor};
inline const ReduceOp kBxor{ReduceKind::kBxor};

/// The sum of the elements times `factor`, which is the same on all ranks.
[[nodiscard]] inline ReduceOp premul_sum(double factor) {
  ReduceOp op(ReduceKind::kPremulSum);
  op.factor = factor;
  return op;
}

/// A commutative and associative function of the user's own. Ranks whose names differ disagree.
[[nodiscard]] inline ReduceOp user_reduction(UserReduction reduction) {
  ReduceOp op(ReduceKind::kUser);
  op.user = std::make_shared<const UserReduction>(std::move(reduction));
  return op;
}

// In each: `timeout` for the whole operation, by default the group's; `label` names the caller's
// object (a tensor, a parameter) in error messages.

struct AllReduceOptions {
  ReduceOp op = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

struct BroadcastOptions {
  int root = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

struct ReduceOptions {
  int root = 0;
  ReduceOp op = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

struct ReduceScatterOptions {
  ReduceOp op = {};
  /// Elements of each rank's block; empty: equal blocks. The same on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

struct AllGatherOptions {
  /// Elements of each rank's block; empty: equal blocks. The same on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Of gather and scatter.
struct RootedOptions {
  int root = 0;
  /// Elements of each rank's block; empty: equal blocks. The same on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

using GatherOptions = RootedOptions;
using ScatterOptions = RootedOptions;

struct AllToAllOptions {
  /// Elements for each rank and from each rank; empty: equal blocks. Both or none.
  std::vector<std::int64_t> in_counts = {};
  std::vector<std::int64_t> out_counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Of new_group() and split().
struct GroupOptions {
  /// For making the group, and for its operations that are given none. Default: the parent's.
  std::optional<std::chrono::milliseconds> timeout = {};
};

struct BarrierOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

struct ObjectOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// As the rank to receive from: whichever sends first.
inline constexpr int kAnySource = -1;

/// Of send and recv.
struct SendOptions {
  /// From 0: tells apart the messages between two ranks. A receive takes the first with its tag.
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

using RecvOptions = SendOptions;

/// One message of a batch.
struct PointToPointOperation {
  enum class Kind : std::uint8_t { kSend, kRecv };

  Kind kind;
  Buffer buffer;
  int peer;  ///< The rank to send to, or to receive from.
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

}  // namespace unisono
