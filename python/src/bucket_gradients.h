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

/// Keeps gradients in the buckets of torch's DistributedDataParallel after the reduction, instead
/// of the copy back to their original memory that torch would make. Holds weak references to
/// parameters and buckets. Thread-safe.
class BucketGradients : public std::enable_shared_from_this<BucketGradients> {
 public:
  using WeakTensor = c10::weak_intrusive_ptr<c10::TensorImpl, c10::UndefinedTensorImpl>;

  /// Registers a bucket for adopt().
  void add(const c10d::GradBucket& bucket) UNISONO_EXCLUDES(mutex_);

  /// Called for each `tensor` to be reduced. If the tensor is the whole of a registered bucket with
  /// gradients copied into it, the gradients are set to views of the bucket's memory: torch then
  /// finds that no copy back is needed.
  void adopt(const at::Tensor& tensor);

  /// Called before a backward pass adds to the parameter's gradient. A gradient that lies in a
  /// bucket is copied out of the bucket: torch copies gradients into buckets and does not
  /// accumulate there.
  void take_out(const at::Tensor& parameter);

 private:
  struct Place {
    WeakTensor parameter;
    std::int64_t offset;  ///< Offset of the gradient, in elements.
  };

  struct Bucket {
    c10::weak_intrusive_ptr<c10::StorageImpl> storage;
    std::vector<Place> places;
  };

  // Returns the places of the bucket that contains the tensor; empty if no registered bucket
  // contains the tensor. Returned by value: the caller may take the GIL, which must not happen
  // under the mutex.
  [[nodiscard]] std::vector<Place> places_in(const at::Tensor& tensor) UNISONO_EXCLUDES(mutex_);

  Mutex mutex_;
  std::vector<Bucket> buckets_ UNISONO_GUARDED_BY(mutex_);
};

}  // namespace unisono::python
