// Functions of the fake libcuda.so.1 for the fake libnccl.so.2 and the tests.
#pragma once

#include <functional>

namespace fake_cuda {

/// Returns CUDA's handle of the default stream.
inline void* default_stream() {
  return reinterpret_cast<void*>(1);
}

/// Calls the function on the stream's thread after all earlier work of the stream.
__attribute__((visibility("default"))) void enqueue(void* stream, std::function<void()> function);

/// Returns the calling thread's current device in the numbering of cuDeviceGet; -1 if there is no
/// current device.
__attribute__((visibility("default"))) int current_device();

/// Returns the number of streams and events that have not been destroyed.
__attribute__((visibility("default"))) int n_live_handles();

}  // namespace fake_cuda
