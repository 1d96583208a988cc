#pragma once

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "unisono/base/buffer.h"
#include "unisono/comm/process_group.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono {

/// Copies one rank's values of many tensors, of any types, to every rank: small ones together,
/// through memory that the node's ranks share, which is kept for the next time.
class CoalescedBroadcast {
 public:
  /// `what` names the tensors in messages: "buffers".
  CoalescedBroadcast(std::vector<NamedTensor> tensors, std::string what);

  /// A collective operation; tensors have the same sizes and types on every rank, and do not change
  /// theirs from one call to the next.
  void run(ProcessGroup& group, std::optional<std::chrono::milliseconds> timeout, int root = 0);

 private:
  void run_part(ProcessGroup& group,
                std::span<const NamedTensor> tensors,
                std::optional<std::chrono::milliseconds> timeout,
                int root);

  std::vector<NamedTensor> tensors_;
  std::string what_;
  Buffer staging_;
};

}  // namespace unisono
