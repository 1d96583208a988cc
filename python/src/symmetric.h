#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"

namespace c10d {
class Reducer;
}

namespace unisono::python {

class BucketGradients;

// Symmetric memory: memory of ProcessGroup::allocate(), on which operations need no copies.

/// Returns a zeroed tensor in symmetric memory. Throws PyTorch's exceptions.
[[nodiscard]] at::Tensor symmetric_empty(ProcessGroup& group,
                                         const std::vector<std::int64_t>& sizes,
                                         at::ScalarType type);

/// Returns true if the tensor is contiguous and lies in symmetric memory of the group's job, so
/// that operations use the tensor without a copy.
[[nodiscard]] bool is_symmetric(const ProcessGroup& group, const at::Tensor& tensor);

/// Result of moving a model's gradient buckets.
struct BucketMove {
  int n_buckets = 0;    ///< Number of buckets of dense gradients.
  int n_symmetric = 0;  ///< Number of buckets that are in symmetric memory now.
  std::string problem;  ///< Reason why the other buckets are not in symmetric memory.
};

/// Moves the flat buckets of DistributedDataParallel, with their contents, into symmetric memory.
/// Views of the buckets, such as gradients, move along. Must not be called while operations on the
/// buckets are in flight. Adds the buckets to `gradients`, unless null.
[[nodiscard]] BucketMove move_buckets(ProcessGroup& group,
                                      const c10d::Reducer& reducer,
                                      BucketGradients* gradients);

}  // namespace unisono::python
