#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::ddp {

struct ReduceShardsOptions {
  int n_shards;
  std::optional<std::chrono::milliseconds> timeout;
  std::string label;
};

/// Starts to make `sum` the sum over all shards in the order of the canonical tree, whatever shards
/// the ranks have. A collective operation.
///
/// `nodes`: what this rank has of nodes_of() its shards, in that order; the last may be `sum`. All
/// have one dimension and equally many elements. Sends, for each rank, as much as an all_reduce of
/// the tensor, and again for each node more that a rank has.
[[nodiscard]] BucketWork reduce_shards(ProcessGroup& group,
                                       const std::vector<at::Tensor>& nodes,
                                       const at::Tensor& sum,
                                       const ReduceShardsOptions& options);

/// Waits for all that is left to be done.
void finish(BucketWork work);

}  // namespace unisono::ddp
