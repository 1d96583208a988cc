#pragma once

#include <chrono>
#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/reduction.h"

namespace unisono {

/// A block for each rank: contiguous in a single buffer, or in a list with an entry per rank.
/// Constructed implicitly from either, and valid only during the call.
struct Blocks {
  // NOLINTBEGIN(google-explicit-constructor): callers pass either.
  /// A buffer that holds all blocks, or a list of one buffer per rank. Both must outlive the call.
  Blocks(const Buffer& buffer) : whole(&buffer) {}

  template <class List>
    requires std::convertible_to<const List&, std::span<const Buffer>>
  Blocks(const List& buffers) : list(buffers) {}

  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool is_list() const { return whole == nullptr; }

  const Buffer* whole = nullptr;
  std::span<const Buffer> list;
  bool is_lent = false;  ///< The caller keeps the memory alive; owners are not counted.
};

/// The function by which a reduction combines the ranks' elements; docs/design/reductions.md
/// defines it for each dtype.
struct ReduceOp {
  // Not an aggregate: GCC 12 reports an aggregate inside options of a call as uninitialized.
  ReduceOp() {}

  /// For kinds without parameters; see premul_sum() and user_reduction() for the other kinds.
  explicit ReduceOp(ReduceKind reduce_kind) : kind(reduce_kind) {}

  ReduceKind kind = ReduceKind::kSum;
  double factor = 1;                          ///< For kPremulSum.
  std::shared_ptr<const UserReduction> user;  ///< For kUser.
};

/// The reductions without a parameter; ReduceKind describes the results.
inline const ReduceOp kSum{ReduceKind::kSum};
inline const ReduceOp kAvg{ReduceKind::kAvg};
inline const ReduceOp kProduct{ReduceKind::kProduct};
inline const ReduceOp kMin{ReduceKind::kMin};
inline const ReduceOp kMax{ReduceKind::kMax};
inline const ReduceOp kBand{ReduceKind::kBand};
inline const ReduceOp kBor{ReduceKind::kBor};
inline const ReduceOp kBxor{ReduceKind::kBxor};

/// Returns the sum of the elements times `factor`, which must be equal on all ranks.
[[nodiscard]] inline ReduceOp premul_sum(double factor) {
  ReduceOp op(ReduceKind::kPremulSum);
  op.factor = factor;
  return op;
}

/// Returns a reduction by a commutative and associative function of the user. Different names on
/// two ranks are a mismatch.
[[nodiscard]] inline ReduceOp user_reduction(UserReduction reduction) {
  ReduceOp op(ReduceKind::kUser);
  op.user = std::make_shared<const UserReduction>(std::move(reduction));
  return op;
}

// Common options: `timeout` limits the whole operation (default: the group's timeout); `label`
// names the caller's object (a tensor, a parameter) in error messages.

/// Options of all_reduce and its coalesced form. `op` is the reduction, `algorithm` selects the way
/// to compute the result, `timeout` limits the whole operation (default: the group's timeout), and
/// `label` names the caller's object in error messages.
struct AllReduceOptions {
  ReduceOp op = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

/// Options of broadcast. `root` is the sending rank, equal on all ranks, `timeout` limits the whole
/// operation (default: the group's timeout), and `label` names the caller's object in error
/// messages.
struct BroadcastOptions {
  int root = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of reduce. `root` is the receiving rank, equal on all ranks, `op` is the reduction,
/// `algorithm` selects the way to compute the result, `timeout` limits the whole operation
/// (default: the group's timeout), and `label` names the caller's object in error messages.
struct ReduceOptions {
  int root = 0;
  ReduceOp op = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

/// Options of reduce_scatter and its coalesced form, which accepts no counts. `op` is the
/// reduction, `algorithm` selects the way to compute the result, `timeout` limits the whole
/// operation (default: the group's timeout), and `label` names the caller's object in error
/// messages.
struct ReduceScatterOptions {
  ReduceOp op = {};
  /// Elements of each rank's block; empty: equal blocks. Equal on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
  Algorithm algorithm = Algorithm::kAuto;
};

/// Options of all_gather and its coalesced form, which accepts no counts. `timeout` limits the
/// whole operation (default: the group's timeout), and `label` names the caller's object in error
/// messages.
struct AllGatherOptions {
  /// Elements of each rank's block; empty: equal blocks. Equal on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of gather and scatter. `root` is the receiving or sending rank, equal on all ranks,
/// `timeout` limits the whole operation (default: the group's timeout), and `label` names the
/// caller's object in error messages.
struct RootedOptions {
  int root = 0;
  /// Elements of each rank's block; empty: equal blocks. Equal on all ranks.
  std::vector<std::int64_t> counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of gather().
using GatherOptions = RootedOptions;
/// Options of scatter().
using ScatterOptions = RootedOptions;

/// Options of all_to_all. The counts may differ between ranks. `timeout` limits the whole operation
/// (default: the group's timeout), and `label` names the caller's object in error messages.
struct AllToAllOptions {
  /// Elements for each rank and from each rank; empty: equal blocks. Set both or neither.
  std::vector<std::int64_t> in_counts = {};
  std::vector<std::int64_t> out_counts = {};
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of new_group() and split().
struct GroupOptions {
  /// Limit for making the group, and default of its operations. Default: the parent's timeout.
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// Options of barrier and monitored_barrier. `timeout` limits the whole operation (default: the
/// group's timeout), and `label` names the caller's object in error messages.
struct BarrierOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of operations on objects. `timeout` limits the whole operation; the default is the
/// group's timeout.
struct ObjectOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
};

/// Source of a receive from any rank: the first sender.
inline constexpr int kAnySource = -1;

/// Options of send and recv. `timeout` limits the whole operation (default: the group's timeout),
/// and `label` names the caller's object in error messages.
struct SendOptions {
  /// At least 0; distinguishes messages between two ranks. A receive takes the first message with
  /// its tag.
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// Options of recv(). The tag selects the messages to receive.
using RecvOptions = SendOptions;

/// A message of a batch.
struct PointToPointOperation {
  /// Direction of the message, as seen by this rank.
  enum class Kind : std::uint8_t { kSend, kRecv };

  Kind kind;
  Buffer buffer;
  int peer;  ///< The rank to send to, or to receive from.
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

}  // namespace unisono
