#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/comm_hook.h"

namespace unisono::optim {

/// Steps of an optimizer whose parameters the ranks divide, made while backward computes: when a
/// bucket is full, the one before it is awaited, each rank steps its parameters in that one, and
/// starts to send their values. What backward has left to compute hides the sending.
///
/// Every rank calls the same operations in the same order: that of the buckets.
class OverlappedSteps {
 public:
  /// Steps those of this rank's parameters, whose gradients are there.
  using Step = std::function<void(const std::vector<at::Tensor>& parameters)>;

  /// `owners`: the rank that steps each parameter.
  OverlappedSteps(std::shared_ptr<ProcessGroup> group,
                  std::map<const void*, int> owners,
                  Step step);

  /// The model's communication hook.
  [[nodiscard]] BucketWork reduce(const GradBucket& bucket);

  /// The optimizer's step(): throws Error(kInvalidArgument) unless one backward pass has made it,
  /// of all parameters.
  void end_step();

  /// The optimizer goes. Later passes throw.
  void stop() { step_ = nullptr; }

 private:
  // Values of one rank's parameters in a bucket, on their way.
  struct Sent {
    int root;
    std::vector<at::Tensor> parameters;
    at::Tensor values;
    Work work;
  };

  void begin_pass();
  void finish_bucket();
  void share(const std::vector<at::Tensor>& parameters, int root, const GradBucket& bucket);
  void finish_pass();

  std::shared_ptr<ProcessGroup> group_;
  std::map<const void*, int> owners_;
  Step step_;
  std::optional<GradBucket> bucket_;  // that is being reduced
  Work work_;
  std::vector<Sent> sent_;
  bool is_in_pass_ = false;
  int n_passes_ = 0;       // since the last end_step()
  std::string unreached_;  // a bucket of the last pass with a parameter that has no gradient
};

}  // namespace unisono::optim
