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

// Symmetric memory: that of ProcessGroup::allocate(), on which operations copy nothing.

/// A zeroed tensor in symmetric memory. Throws PyTorch's exceptions.
[[nodiscard]] at::Tensor symmetric_empty(ProcessGroup& group,
                                         const std::vector<std::int64_t>& sizes,
                                         at::ScalarType type);

/// Whether the tensor is contiguous and lies in symmetric memory of the group's job, so that
/// operations take it as it lies.
[[nodiscard]] bool is_symmetric(const ProcessGroup& group, const at::Tensor& tensor);

/// What became of a model's gradient buckets.
struct BucketMove {
  int n_buckets = 0;    ///< Those of dense gradients.
  int n_symmetric = 0;  ///< Of these, how many lie in symmetric memory now.
  std::string problem;  ///< Why the others don't.
};

/// Moves the flat buckets of DistributedDataParallel into symmetric memory, with what they hold:
/// their views, gradients among them, move along. Not while operations on them are under way. Adds
/// them to `gradients`, unless it is null.
[[nodiscard]] BucketMove move_buckets(ProcessGroup& group,
                                      const c10d::Reducer& reducer,
                                      BucketGradients* gradients);

}  // namespace unisono::python
