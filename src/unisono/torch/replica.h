#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/coalesced_broadcast.h"
#include "unisono/torch/named_tensor.h"

namespace unisono {

/// Names and defaults are PyTorch's. Equal on every rank.
struct DistributedDataParallelOptions {
  /// Gradients are reduced in buckets of about so many MiB.
  double bucket_cap_mb = 25;
  /// The first bucket's, smaller, so that communication starts early in backward.
  double first_bucket_cap_mb = 1;
  /// Copy rank 0's buffers (running means of batch norm, ...) to all ranks before a forward pass
  /// that follows one in training mode.
  bool broadcast_buffers = true;
  /// Allow parameters that a backward pass does not reach. Costs one more small all_reduce, and
  /// overlap where a bucket waits for a gradient that will not come.
  bool find_unused_parameters = false;
  /// Of each operation; by default the group's.
  std::optional<std::chrono::milliseconds> timeout = {};
};

namespace ddp {

class Reducer;

/// This rank's copy of a module, and what keeps it equal to the other ranks' copies: all of
/// DistributedDataParallel that does not depend on the module's type.
class Replica {
 public:
  /// A collective operation: compares the ranks' modules, then copies rank 0's values to all.
  Replica(std::shared_ptr<ProcessGroup> group,
          const std::vector<NamedTensor>& parameters,
          const std::vector<NamedTensor>& buffers,
          const DistributedDataParallelOptions& options);
  ~Replica();

  Replica(const Replica&) = delete;
  Replica& operator=(const Replica&) = delete;
  Replica(Replica&&) = delete;
  Replica& operator=(Replica&&) = delete;

  void before_forward(bool is_training);

  /// Sees to it that a backward pass from any of the outputs is noticed.
  void after_forward(std::span<at::Tensor* const> outputs);

  [[nodiscard]] bool is_synchronized() const { return is_synchronized_; }

  void set_synchronized(bool is_synchronized);

  [[nodiscard]] std::size_t n_buckets() const;

 private:
  std::shared_ptr<ProcessGroup> group_;
  DistributedDataParallelOptions options_;
  CoalescedBroadcast buffers_;
  std::shared_ptr<Reducer> reducer_;  // shared with the callbacks of running backward passes
  bool is_synchronized_ = true;
  bool may_buffers_differ_ = false;
};

}  // namespace ddp
}  // namespace unisono
