#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <c10/util/intrusive_ptr.h>

#include "unisono/base/mutex.h"

namespace c10d {
class GradBucket;
}

namespace unisono::python {

/// Lets gradients lie in the buckets of DistributedDataParallel in which they are reduced, where
/// torch would copy them back to where they came from. Keeps neither models nor buckets alive.
/// Thread-safe.
class BucketGradients : public std::enable_shared_from_this<BucketGradients> {
 public:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  /// From now on adopt() knows the bucket.
  void add(const c10d::GradBucket& bucket) UNISONO_EXCLUDES(mutex_);

  /// `tensor` is to be reduced. If it is the whole of a bucket that was added, whose gradients were
  /// copied into it, they lie there from now on: torch sees that nothing is to be copied back.
  void adopt(const at::Tensor& tensor);

  /// A backward pass is to add to the parameter's gradient. If that lies in a bucket, it leaves it:
  /// torch copies gradients into buckets, and adds nothing up there.
  void take_out(const at::Tensor& parameter);

 private:
  struct Place {
    WeakTensor parameter;
    std::int64_t offset;  ///< Of the gradient, in elements.
  };

  struct Bucket {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<Place> places;
  };

  // Of the bucket that the tensor lies in; none if it lies in no known one. What is done with them
  // may take Python's lock, and so must not hold the mutex.
  [[nodiscard]] std::vector<Place> places_in(const at::Tensor& tensor) UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Bucket> buckets_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::python
