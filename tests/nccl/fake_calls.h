// What the fake libnccl.so.2 makes of the calls of a group.
#pragma once

#include <nccl.h>

#include <cstddef>
#include <optional>
#include <vector>

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
  int peer = 0;  ///< Or the root.
};

/// What is to be written where, when all ranks have read their inputs.
struct Write {
  void* to;
  std::vector<std::byte> bytes;
};

[[nodiscard]] bool is_message(const Call& call);

/// What it gives the others, of a call that gives all the same.
[[nodiscard]] std::vector<std::byte> bytes_of(const Call& call);

/// What a group of collective calls comes to on rank `self`, from the calls of all ranks. Nothing
/// if they don't fit, or for a type without arithmetic.
[[nodiscard]] std::optional<std::vector<Write>> compute(const std::vector<std::vector<Call>>& ranks,
                                                        int self);

}  // namespace fake_nccl
