#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "unisono/comm/work.h"

namespace unisono {

/// Argument of a communication hook: a bucket with all gradients of this rank. If the pass ended
/// with an exception, the bucket holds arbitrary values, so a hook updates its state between passes
/// only in BucketWork::then. Copies refer to the same memory.
class GradBucket {
 public:
  /// Values that the members of GradBucket return.
  struct Parts {
    std::size_t index;
    bool is_last;
    at::Tensor buffer;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> parameters;
    std::string label;
    std::optional<std::chrono::milliseconds> timeout;
  };

  /// Called by the reducer of DistributedDataParallel.
  explicit GradBucket(Parts parts) : parts_(std::move(parts)) {}

  /// Number of the bucket, equal on every rank. Buckets are reduced in ascending order.
  [[nodiscard]] std::size_t index() const { return parts_.index; }

  /// Returns true for the last bucket of the backward pass.
  [[nodiscard]] bool is_last() const { return parts_.is_last; }

  /// All gradients in one dimension. Padding elements between gradients are zero and must stay
  /// zero.
  [[nodiscard]] const at::Tensor& buffer() const { return parts_.buffer; }

  /// Views of buffer(), with the sizes and strides of the parameters.
  [[nodiscard]] const std::vector<at::Tensor>& gradients() const { return parts_.gradients; }

  /// The parameters, in the order of gradients().
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parts_.parameters; }

  /// Name of the bucket in messages. Hooks pass label() and timeout() to the operations that they
  /// start.
  [[nodiscard]] const std::string& label() const { return parts_.label; }

  [[nodiscard]] std::optional<std::chrono::milliseconds> timeout() const { return parts_.timeout; }

 private:
  Parts parts_;
};

/// Result of a hook: the operation in flight and its continuation.
struct BucketWork {
  Work work = {};
  /// Called on the thread of backward() at the end of the pass, after `work` of all buckets is
  /// complete: for all buckets in ascending order, then again for the buckets with a continuation
  /// that returned more work. A continuation may therefore start collective operations. Not called
  /// if a rank aborted the pass.
  std::function<BucketWork()> then = {};
};

/// Communication hook. Starts to replace a bucket's buffer by the final gradients: the mean over
/// the ranks or an approximation of the mean. The result must be in the buffer when the work and
/// its continuations are complete.
///
/// backward() calls the hook for each bucket in ascending order. Every rank must start the same
/// collective operations. An exception of the hook is thrown by backward() and aborts the group,
/// because other ranks wait for the operations of this rank.
using CommHook = std::function<BucketWork(const GradBucket& bucket)>;

}  // namespace unisono
