#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/ddp/pass_flags.h"
#include "unisono/torch/device/device_stream.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

/// Registers a bucket's memory for is_in_a_bucket() while the object lives. Owned by the
/// GradientBucket. Thread-safe.
class BucketMemory {
 public:
  explicit BucketMemory(const at::Tensor& elements);
  ~BucketMemory();

  BucketMemory(const BucketMemory&) = delete;
  BucketMemory& operator=(const BucketMemory&) = delete;
  BucketMemory(BucketMemory&&) = delete;
  BucketMemory& operator=(BucketMemory&&) = delete;

 private:
  const void* begin_;
};

/// Returns true if the tensor lies in the memory of a live bucket, so that the tensor is an average
/// over the ranks. Thread-safe.
[[nodiscard]] bool is_in_a_bucket(const at::Tensor& tensor);

/// Options of one bucket's all_reduce.
struct ReduceBucketOptions {
  ReduceOp op;
  std::optional<std::chrono::milliseconds> timeout;
};

/// Gradients that are reduced together: memory, and a view of the memory for each gradient. The
/// memory is on the device of the parameters; for parameters on the CPU the node's ranks share it.
///
/// Owned by a BucketSet. Gradients that are views keep the memory alive after the bucket is
/// destroyed. Not thread-safe.
class GradientBucket {
 public:
  GradientBucket(ProcessGroup& group,
                 const BucketLayout& layout,
                 std::span<const NamedTensor> parameters,
                 const std::vector<bool>& is_sparse,
                 std::size_t index);

  /// View of the bucket's memory for the gradient in `slot`, with the sizes and strides of the
  /// parameter. The view of a sparse gradient has no elements.
  [[nodiscard]] const at::Tensor& view(std::size_t slot) const { return views_[slot]; }

  /// Makes the parameter's gradient this rank's contribution to the bucket. Copies the values of
  /// `.grad` into the view, unless `.grad` is the view already, and points `.grad` at the view. An
  /// undefined `.grad` stays undefined and contributes zeros. Not for sparse gradients.
  ///
  /// Throws Error(kInvalidArgument) if `.grad` is sparse or of another type, size or device.
  void deposit(std::size_t slot, const NamedTensor& parameter);

  /// Starts an all_reduce of the bucket.
  void launch(ProcessGroup& group, const ReduceBucketOptions& options);

  /// Returns the bucket's first `n_elems` elements as the argument of a hook.
  [[nodiscard]] GradBucket for_hook(std::size_t index,
                                    bool is_last,
                                    std::int64_t n_elems,
                                    std::optional<std::chrono::milliseconds> timeout);

  [[nodiscard]] std::int64_t n_elems() const { return elements_.numel(); }

  /// Waits for the all_reduce. Throws the error of the operation.
  void wait() const { work_.wait(); }

  /// Returns `n_elems` of the bucket's elements, starting at `offset`.
  [[nodiscard]] at::Tensor elements(std::int64_t offset, std::int64_t n_elems) const;

  [[nodiscard]] at::Device device() const { return elements_.device(); }

 private:
  void join_streams();
  [[nodiscard]] at::Tensor part(std::int64_t offset,
                                at::IntArrayRef sizes,
                                at::IntArrayRef strides) const;

  at::Tensor elements_;  // [n_elems], contiguous
  UsedStreams streams_;  // of the deposits; unused on the CPU
  std::unique_ptr<BucketMemory> memory_;
  std::vector<at::Tensor> views_;
  // Views and parameters without the sparse gradients:
  std::vector<at::Tensor> dense_views_;
  std::vector<at::Tensor> dense_parameters_;
  std::string label_;
  Work work_;
};

/// The buckets of a module, and the position of each parameter's gradient in the buckets.
///
/// Owned by the Reducer, which builds a new set when the order of gradients or the set of
/// parameters changes. Holds memory that the ranks of a node share. Not thread-safe: all calls come
/// from the thread that runs backward. Errors of communication are thrown by the wait functions.
class BucketSet {
 public:
  /// `parameters` must outlive the set. Parameters that `is_sparse` marks have a place in the
  /// order, but no elements in a bucket. The first bucket has room for `n_votes` vote elements.
  BucketSet(ProcessGroup& group,
            std::span<const NamedTensor> parameters,
            const std::vector<bool>& is_sparse,
            std::span<const std::size_t> order,
            const BucketCaps& caps,
            std::int64_t n_votes = 0);

  [[nodiscard]] std::size_t size() const { return buckets_.size(); }

  /// Bucket of each parameter's gradient, by parameter index.
  [[nodiscard]] const std::vector<std::size_t>& bucket_of() const { return bucket_of_; }

  /// View of the bucket's memory for the parameter's gradient.
  [[nodiscard]] const at::Tensor& view(std::size_t parameter) const {
    return buckets_[bucket_of_[parameter]].view(slot_of_[parameter]);
  }

  /// Calls GradientBucket::deposit() for the parameter.
  void deposit(std::size_t parameter);

  /// Starts to reduce the bucket over the ranks, by the hook if there is one. The last one takes
  /// this rank's flags with it.
  void launch(std::size_t bucket,
              PassFlags flags,
              const CommHook& hook,
              const ReduceBucketOptions& options);

  /// Returns all elements of a bucket, including the elements that carry no gradient.
  [[nodiscard]] at::Tensor elements(std::size_t bucket) const {
    return buckets_[bucket].elements(0, buckets_[bucket].n_elems());
  }

  /// Vote elements of the first bucket.
  [[nodiscard]] const at::Tensor& votes() const { return votes_; }

  /// Waits for the first bucket only. Throws the error of its operation.
  void wait_for_first() const { buckets_.front().wait(); }

  /// Waits for all buckets and runs the continuations of hooks (BucketWork::then). Throws the error
  /// of an operation that failed.
  void wait();

  /// Multiplies all gradients by `factor`. A factor of 0 sets all gradients to zero, including
  /// infinities and NaNs.
  void multiply(double factor) const;

  /// Divides all gradients by `divisor`.
  void divide(std::int64_t divisor) const;

  /// After wait(): the OR of the flags of all ranks; the same on all of them.
  [[nodiscard]] PassFlags flags() const { return read_flags(flags_); }

 private:
  void launch_hook(std::size_t bucket,
                   const CommHook& hook,
                   std::optional<std::chrono::milliseconds> timeout);
  void launch_flags(std::optional<std::chrono::milliseconds> timeout);
  void finish_hooks();

  ProcessGroup& group_;
  std::span<const NamedTensor> parameters_;
  std::vector<GradientBucket> buckets_;
  std::vector<std::size_t> bucket_of_;
  std::vector<std::size_t> slot_of_;
  std::int64_t flags_offset_ = 0;
  at::Tensor flags_;
  at::Tensor votes_;
  Work flags_work_;  // with a hook, or on a device; else the flags go with the last bucket
  std::vector<BucketWork> of_hook_;
};

}  // namespace unisono::ddp
