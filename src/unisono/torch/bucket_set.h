#pragma once

#include <chrono>
#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/torch/bucket_plan.h"
#include "unisono/torch/gradient_bucket.h"
#include "unisono/torch/named_tensor.h"

namespace unisono::ddp {

/// The buckets of a module, and where in them each parameter's gradient lies.
class BucketSet {
 public:
  /// `parameters` must outlive the set.
  BucketSet(ProcessGroup& group,
            std::span<const NamedTensor> parameters,
            std::span<const std::size_t> order,
            const BucketCaps& caps);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }

  /// The bucket of each parameter's gradient.
  [[nodiscard]] const std::vector<std::size_t>& bucket_of() const { return bucket_of_; }

  [[nodiscard]] const at::Tensor& view(std::size_t parameter) const {
    return buckets_[bucket_of_[parameter]].view(slot_of_[parameter]);
  }

  /// GradientBucket::deposit() of that parameter.
  void deposit(std::size_t parameter) const;

  /// Starts to average the bucket over the ranks. The last one tells the other ranks whether this
  /// rank has given its backward pass up.
  void launch(std::size_t bucket,
              bool has_given_up,
              std::optional<std::chrono::milliseconds> timeout);

  /// Waits for all buckets; throws an operation's error.
  void wait() const;

  /// After wait(): whether a rank has given up.
  [[nodiscard]] bool has_a_rank_given_up() const;

 private:
  ProcessGroup& group_;
  std::span<const NamedTensor> parameters_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> slot_of_;
  at::Tensor status_;
};

}  // namespace unisono::ddp
