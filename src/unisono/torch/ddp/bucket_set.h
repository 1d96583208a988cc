#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/gradient_bucket.h"
#include "unisono/torch/ddp/pass_marks.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// The buckets of a module, and where in them each parameter's gradient lies.
class BucketSet {
 public:
  /// `parameters` must outlive the set. Those that are sparse by `is_sparse` have their place in
  /// the order, but no room in a bucket. The first bucket has room for `n_votes`.
  BucketSet(ProcessGroup& group,
            std::span<const NamedTensor> parameters,
            const std::vector<bool>& is_sparse,
            std::span<const std::size_t> order,
            const BucketCaps& caps,
            std::int64_t n_votes = 0);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }

  /// The bucket of each parameter's gradient.
  [[nodiscard]] const std::vector<std::size_t>& bucket_of() const { return bucket_of_; }

  [[nodiscard]] const at::Tensor& view(std::size_t parameter) const {
    return buckets_[bucket_of_[parameter]].view(slot_of_[parameter]);
  }

  /// GradientBucket::deposit() of that parameter.
  void deposit(std::size_t parameter) const;

  /// Starts to reduce the bucket over the ranks, by the hook if there is one. The last one takes
  /// this rank's marks with it.
  void launch(std::size_t bucket,
              const PassMarks& marks,
              const CommHook& hook,
              const ReduceBucketOptions& options);

  /// All of a bucket's elements, those that carry no gradient among them.
  [[nodiscard]] at::Tensor elements(std::size_t bucket) const {
    return buckets_[bucket].elements(0, buckets_[bucket].n_elems());
  }

  /// The first bucket's elements for votes.
  [[nodiscard]] const at::Tensor& votes() const { return votes_; }

  /// Waits for the first bucket alone; throws its operation's error.
  void wait_for_first() const { buckets_.front().wait(); }

  /// Waits for all buckets, and does what hooks left to be done; throws an operation's error.
  void wait();

  /// Multiplies all gradients; by 0, whatever they are.
  void multiply(double factor) const;

  /// Divides all gradients.
  void divide(std::int64_t divisor) const;

  /// After wait(): the worst of all ranks'.
  [[nodiscard]] PassStatus status() const { return read_status(marks_); }

  /// After wait(): whether ranks had different fingerprints; the same on all of them.
  [[nodiscard]] bool do_fingerprints_differ() const { return ddp::do_fingerprints_differ(marks_); }

  /// After wait(): whether any rank lacks gradients; the same on all of them.
  [[nodiscard]] bool is_any_lacking() const { return ddp::is_any_lacking(marks_); }

 private:
  void launch_hook(std::size_t bucket,
                   const CommHook& hook,
                   std::optional<std::chrono::milliseconds> timeout);
  void launch_marks(std::optional<std::chrono::milliseconds> timeout);
  void finish_hooks();

  ProcessGroup& group_;
  std::span<const NamedTensor> parameters_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> slot_of_;
  std::int64_t marks_offset_ = 0;
  at::Tensor marks_;
  at::Tensor votes_;
  Work marks_work_;  // with a hook; else the marks go with the last bucket
  std::vector<BucketWork> of_hook_;
};

}  // namespace unisono::ddp
