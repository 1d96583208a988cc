#pragma once

#include <ATen/core/Tensor.h>

#include "unisono/base/buffer.h"

namespace unisono {

/// Use of a tensor by an operation.
enum class TensorAccess {
  kRead,      ///< The operation reads the elements.
  kWrite,     ///< The operation overwrites all elements.
  kReadWrite  ///< The operation reads the elements, and may write them.
};

/// Returns a buffer of page-locked host memory that stands for a tensor on a device in one
/// operation. The elements are copied from and to the device on streams of the library, ordered by
/// events: the copy to the host begins when the work is complete that this thread has passed to its
/// current stream before this call. Does not wait for the device. The buffer keeps the tensor and
/// the host memory alive.
///
/// `tensor` is dense and contiguous, `dtype` has the width of its elements. Throws Error:
/// kInvalidArgument for a device that does not exist, kSystem if there is no memory, or the device
/// has failed.
[[nodiscard]] Buffer mirror_tensor(const at::Tensor& tensor, DType dtype, TensorAccess access);

}  // namespace unisono
