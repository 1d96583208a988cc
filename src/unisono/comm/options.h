#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "unisono/base/algorithm.h"
#include "unisono/base/buffer.h"
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

struct BarrierOptions {
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

/// As the rank to receive from: whichever sends first.
inline constexpr int kAnySource = -1;

// In both: `tag`, from 0, tells apart the messages between two ranks: a receive takes the first
// message with its tag.

struct SendOptions {
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

struct RecvOptions {
  int tag = 0;
  std::optional<std::chrono::milliseconds> timeout = {};
  std::string label = {};
};

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
