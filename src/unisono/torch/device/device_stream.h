#pragma once

#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/core/Event.h>
#include <c10/core/Stream.h>

#include "unisono/base/deadline.h"

namespace unisono {

/// A stream of a device on which the library copies tensors beside the program's streams. Works for
/// every accelerator of LibTorch through LibTorch's generic interfaces.
///
/// A value. The device's streams are chosen at the first use and kept, because streams of
/// LibTorch's pool are shared among all who ask for one. Thread-safe.
class DeviceStream {
 public:
  /// Purpose of a stream: copies in one direction never wait behind copies in the other.
  enum class Direction { kToHost, kToDevice };

  /// Throws Error(kInvalidArgument) for the CPU, and for a device that this process does not have.
  DeviceStream(at::Device device, Direction direction);

  [[nodiscard]] const c10::Stream& get() const { return stream_; }

  /// Makes the stream wait for `event`.
  void follow(const c10::Event& event) const { event.block(stream_); }

  /// Returns an event that is complete when all present work of the stream is.
  [[nodiscard]] c10::Event record() const;

  /// Keeps the tensor's memory from being reused until the present work of the stream is complete,
  /// even if the tensor is destroyed before.
  void keep(const at::Tensor& tensor) const;

 private:
  c10::Stream stream_;
};

/// Returns an event that is complete when the work is that this thread has passed to its current
/// stream of the device.
[[nodiscard]] c10::Event record_current(at::Device device);

/// Makes the work that this thread passes to its current stream of the device from now on wait for
/// `event`.
void make_current_wait(at::Device device, const c10::Event& event);

/// The streams on which threads have passed work on one device, so that work on another stream can
/// wait for all of them. Not thread-safe.
class UsedStreams {
 public:
  /// Adds this thread's current stream of the device.
  void add_current(at::Device device);

  /// Makes this thread's current stream of the device wait for the present work of all added
  /// streams, and removes them.
  void make_current_wait(at::Device device);

 private:
  std::vector<c10::Stream> streams_;
};

/// Waits until the event is complete. Throws Error(kTimeout) at the deadline, Error(kSystem) if the
/// device has failed, and the error of an interruption.
void await_event(const c10::Event& event, Deadline deadline);

/// Returns whether this process has an accelerator, whose memory page-locked host memory reaches
/// faster.
[[nodiscard]] bool has_accelerator();

}  // namespace unisono
