// Computes the results of grouped calls for the fake libnccl.so.2.
#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "unisono/engine/nccl/nccl_api.h"

namespace fake_nccl {

enum class Kind { kAllReduce, kReduce, kBroadcast, kAllGather, kReduceScatter, kSend, kRecv };

/// A call of one rank.
struct Call {
  Kind kind;
  const void* in;
  void* out;
  std::size_t count;
  ncclDataType_t type;
  ncclRedOp_t op = ncclSum;
  int peer = 0;  ///< The peer, or the root.
};

/// A write that takes place after all ranks have read their inputs.
struct Write {
  void* to;
  std::vector<std::byte> bytes;
};

[[nodiscard]] bool is_message(const Call& call);

/// Returns the bytes that a call contributes, for calls that send the same bytes to all ranks.
[[nodiscard]] std::vector<std::byte> bytes_of(const Call& call);

/// Returns the results of a group of collective calls on rank `self`, from the calls of all ranks.
/// Returns std::nullopt if the calls don't fit or if a type has no arithmetic.
[[nodiscard]] std::optional<std::vector<Write>> compute(const std::vector<std::vector<Call>>& ranks,
                                                        int self);

}  // namespace fake_nccl
