#pragma once

#include <memory>

#include "unisono/comm/process_group.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/comm_hooks/error_memory.h"

namespace unisono {

/// What top_k_hook() keeps from one pass to the next: of one model.
class TopKState {
 public:
  /// `ratio` of a bucket's gradients are sent, one at least; equal on every rank. Throws
  /// Error(kInvalidArgument) unless it is above 0 and at most 1.
  TopKState(std::shared_ptr<ProcessGroup> group, double ratio);

 private:
  friend BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

  std::shared_ptr<ProcessGroup> group_;
  double ratio_;
  ddp::ErrorMemory errors_;
};

/// Each rank sends its gradients of largest magnitude, with their places, and the mean over ranks
/// is made of these. What a rank did not send is added to its next gradients, so that nothing is
/// lost. A gradient takes 4 bytes more than without, so that less is sent from a ratio below
/// 1 / world size on. Complex gradients are averaged as they are.
///
/// Source: Lin, Han, Mao, Wang and Dally, "Deep gradient compression", ICLR 2018.
BucketWork top_k_hook(TopKState& state, const GradBucket& bucket);

}  // namespace unisono
