#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/base/user_reduction.h"
#include "unisono/transport/descriptor.h"

namespace unisono::engine {

/// One call of one rank. Buffers were checked to fit the descriptor.
struct Operation {
  transport::Descriptor descriptor = {};
  std::uint64_t sequence = 0;  ///< Number in the group, from 1, the same on every rank.
  /// What this rank contributes as a whole; of a broadcast the same as `out`. A reduce_scatter has
  /// it where its blocks lie one after the other.
  Buffer in = {};
  Buffer out = {};
  /// In blocks, by rank: what is for rank r (scatter on the root, all_to_all, reduce_scatter), and
  /// what comes from rank r (gather on the root, all_gather, all_to_all). Of a coalesced operation:
  /// the buffers of each, and `in` and `out` are empty.
  std::vector<Buffer> ins = {};
  std::vector<Buffer> outs = {};
  double factor = 1;                                    ///< Of kPremulSum.
  std::shared_ptr<const UserReduction> user = nullptr;  ///< Of kUser.
  std::string label = {};  ///< What the caller calls its buffer, for messages.
};

/// Whether it has a buffer on a GPU.
[[nodiscard]] inline bool is_on_gpu(const Operation& operation) {
  const auto is_there = [](const Buffer& buffer) {
    return buffer.device.type == DeviceType::kCuda;
  };
  return is_there(operation.in) || is_there(operation.out) ||
         std::any_of(operation.ins.begin(), operation.ins.end(), is_there) ||
         std::any_of(operation.outs.begin(), operation.outs.end(), is_there);
}

/// The buffers whose sizes all ranks must agree on; on some ranks of a rooted operation none.
[[nodiscard]] inline std::span<const Buffer> agreed_blocks(const Operation& operation) {
  switch (operation.descriptor.kind) {
    case transport::OperationKind::kAllGather:
    case transport::OperationKind::kAllGatherCoalesced:
    case transport::OperationKind::kGather:
      return operation.outs;
    default:
      return operation.ins;
  }
}

}  // namespace unisono::engine
