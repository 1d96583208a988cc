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

#include "unisono/base/buffer.h"
#include "unisono/comm/options.h"
#include "unisono/comm/process_group.h"
#include "unisono/comm/work.h"
#include "unisono/torch/ddp/bucket_memory.h"
#include "unisono/torch/ddp/bucket_plan.h"
#include "unisono/torch/ddp/comm_hook.h"
#include "unisono/torch/tensor/named_tensor.h"

namespace unisono::ddp {

struct ReduceBucketOptions {
  ReduceOp op;
  std::optional<std::chrono::milliseconds> timeout;
};

/// Gradients that are reduced together: memory that the node's ranks share, and a view of it for
/// each gradient.
class GradientBucket {
 public:
  GradientBucket(ProcessGroup& group,
                 const BucketLayout& layout,
                 std::span<const NamedTensor> parameters,
                 const std::vector<bool>& is_sparse,
                 std::size_t index);

  /// The bucket's memory for its gradient `slot`, with sizes and strides of the parameter; of a
  /// sparse one, a tensor without elements.
  [[nodiscard]] const at::Tensor& view(std::size_t slot) const { return views_[slot]; }

  /// Makes the parameter's gradient this rank's contribution: the values of `.grad` are copied into
  /// the view, unless they are there already, and `.grad` becomes the view. Where `.grad` is
  /// undefined it stays so, and the contribution is zero. Not of a sparse one.
  ///
  /// Throws Error(kInvalidArgument) when `.grad` is sparse or of other type or sizes.
  void deposit(std::size_t slot, const NamedTensor& parameter) const;

  /// Starts to reduce the bucket over the ranks.
  void launch(ProcessGroup& group, const ReduceBucketOptions& options);

  /// The bucket as a hook sees it: its first `n_elems` elements.
  [[nodiscard]] GradBucket for_hook(std::size_t index,
                                    bool is_last,
                                    std::int64_t n_elems,
                                    std::optional<std::chrono::milliseconds> timeout) const;

  [[nodiscard]] std::int64_t n_elems() const { return buffer_.count; }

  /// Waits for the result; throws the operation's error.
  void wait() const { work_.wait(); }

  /// `n_elems` of the bucket's elements, from `offset` on.
  [[nodiscard]] at::Tensor elements(std::int64_t offset, std::int64_t n_elems) const;

 private:
  Buffer buffer_;
  std::unique_ptr<BucketMemory> memory_;
  std::vector<at::Tensor> views_;
  // Without the sparse ones:
  std::vector<at::Tensor> dense_views_;
  std::vector<at::Tensor> dense_parameters_;
  std::string label_;
  Work work_;
};

}  // namespace unisono::ddp
