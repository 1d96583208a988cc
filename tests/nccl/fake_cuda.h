// What the fake libcuda.so.1 offers the fake libnccl.so.2 and the tests.
#pragma once

#include <functional>

namespace fake_cuda {

/// CUDA's name of the default stream.
inline void* default_stream() {
  return reinterpret_cast<void*>(1);
}

/// Has the stream's thread call the function after all that the stream was given before.
__attribute__((visibility("default"))) void enqueue(void* stream, std::function<void()> function);

/// The calling thread's current device, as cuDeviceGet numbers it; -1: none.
__attribute__((visibility("default"))) int current_device();

}  // namespace fake_cuda
