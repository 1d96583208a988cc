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

/// What a communication hook gets: a bucket that holds all of its gradients of this rank. Where the
/// pass has ended with an exception it holds any: what a hook remembers of a pass, it stores in
/// BucketWork::then. Copies refer to the same memory.
class GradBucket {
 public:
  struct Parts {
    std::size_t index;
    bool is_last;
    at::Tensor buffer;
    std::vector<at::Tensor> gradients;
    std::vector<at::Tensor> parameters;
    std::string label;
    std::optional<std::chrono::milliseconds> timeout;
  };

  explicit GradBucket(Parts parts) : parts_(std::move(parts)) {}

  /// The bucket's number; buckets are reduced in its order. The same on every rank.
  [[nodiscard]] std::size_t index() const { return parts_.index; }

  /// Whether this is the last bucket of its backward pass.
  [[nodiscard]] bool is_last() const { return parts_.is_last; }

  /// All gradients in one dimension, with zeros between some of them, which must stay zeros.
  [[nodiscard]] const at::Tensor& buffer() const { return parts_.buffer; }

  /// Views of buffer(), with sizes and strides of their parameters.
  [[nodiscard]] const std::vector<at::Tensor>& gradients() const { return parts_.gradients; }

  /// In the order of gradients().
  [[nodiscard]] const std::vector<at::Tensor>& parameters() const { return parts_.parameters; }

  /// Names the bucket in messages: for the options of operations, as is timeout().
  [[nodiscard]] const std::string& label() const { return parts_.label; }

  [[nodiscard]] std::optional<std::chrono::milliseconds> timeout() const { return parts_.timeout; }

 private:
  Parts parts_;
};

/// What a hook has started.
struct BucketWork {
  Work work = {};
  /// What to do when `work` is done; called on the thread of backward(), at its end: for all
  /// buckets in their order, then for all that return more work again, so that it may call
  /// collective operations. Not called when a rank has given the pass up.
  std::function<BucketWork()> then = {};
};

/// Starts to replace a bucket's buffer by what the parameters' gradients shall be: the mean over
/// the ranks, or what goes for it. When all is done, it must be there, in place.
///
/// Called by backward(), for each bucket in the order of their numbers. Every rank calls the same
/// collective operations. What it throws, backward() throws; the group is then closed, as other
/// ranks wait for the operations of this one.
using CommHook = std::function<BucketWork(const GradBucket& bucket)>;

}  // namespace unisono
