#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "unisono/base/algorithm.h"
#include "unisono/base/reduce_kind.h"

namespace unisono {

/// What all_reduce computes from the ranks' elements.
struct ReduceOp {
  ReduceKind kind = ReduceKind::kSum;
};

inline constexpr ReduceOp kSum{ReduceKind::kSum};
inline constexpr ReduceOp kAvg{ReduceKind::kAvg};
inline constexpr ReduceOp kProduct{ReduceKind::kProduct};
inline constexpr ReduceOp kMin{ReduceKind::kMin};
inline constexpr ReduceOp kMax{ReduceKind::kMax};

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

}  // namespace unisono
