#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

namespace unisono {

/// Copies of device tensors in page-locked host memory. All copies are in flight at the same time,
/// so that the host waits once for many tensors.
///
/// Owned by the caller; the copies live on without the object. Copies run on the current stream of
/// the thread that calls add(), after the work that the stream has: later work on the stream may
/// overwrite the tensor. Not thread-safe, but wait() may be called by another thread than add().
/// Errors of the device are thrown by wait().
class HostCopies {
 public:
  /// Starts to copy a tensor and returns the copy, whose elements are valid after wait(). Strides
  /// are kept where elements are dense. Returns a tensor in CPU memory as it is.
  at::Tensor add(const at::Tensor& tensor);

  /// Waits until all copies are complete.
  void wait();

  /// Returns true if no copy is in flight.
  [[nodiscard]] bool is_empty() const { return sources_.empty(); }

 private:
  std::vector<at::Tensor> sources_;  // Freed after the copies.
  std::vector<c10::Event> copied_;   // One for each tensor in flight.
};

/// Returns the stream of a device that takes the calling thread's work.
[[nodiscard]] c10::Stream current_stream(at::Device device);

/// Waits until the present work of current_stream(device) is complete.
void synchronize_current(at::Device device);

/// Returns true if tensors on the device have elements: on the CPU and on accelerators, but not on
/// LibTorch's device "meta".
[[nodiscard]] bool has_elements(at::Device device);

/// Returns a view of the tensor's memory as bytes, in the order of the memory. The tensor is dense:
/// its elements lie in memory without gaps.
[[nodiscard]] at::Tensor memory_of(const at::Tensor& tensor);

/// Returns the tensor in CPU memory: the tensor, or a copy. Waits for the copy.
[[nodiscard]] at::Tensor on_host(const at::Tensor& tensor);

}  // namespace unisono
